"""Looking at runs from outside: list, follow, wait."""
