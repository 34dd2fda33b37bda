"""Paths and files: where state lives, who else could change a path, reads that follow no link."""
