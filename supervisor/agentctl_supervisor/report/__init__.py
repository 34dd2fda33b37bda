"""Computes the report of a run from its records.  Pure."""
