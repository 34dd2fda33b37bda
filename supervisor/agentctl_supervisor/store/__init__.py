"""Stores runs on disk: their directories, their logs, and the reports made from the logs."""
