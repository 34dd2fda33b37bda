"""Ends what a dead supervisor left running, and finishes the records of its runs."""
