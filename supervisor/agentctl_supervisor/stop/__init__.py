"""Ending a run: the ladder, how it is carried out, and how without a supervisor."""
