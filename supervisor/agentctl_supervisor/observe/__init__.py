"""The view of runs from outside: list, follow, wait."""
