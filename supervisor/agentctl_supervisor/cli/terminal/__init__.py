"""Standard streams and the terminal."""
