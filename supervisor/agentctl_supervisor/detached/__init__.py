"""A supervisor of its own for a run that nobody waits for."""
