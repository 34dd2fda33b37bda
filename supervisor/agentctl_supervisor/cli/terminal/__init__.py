"""Handles the standard streams and the terminal."""
