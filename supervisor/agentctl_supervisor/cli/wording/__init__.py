"""Makes the text that commands print for people."""
