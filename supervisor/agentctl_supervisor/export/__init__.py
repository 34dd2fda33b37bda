"""Exports a run as one file."""
