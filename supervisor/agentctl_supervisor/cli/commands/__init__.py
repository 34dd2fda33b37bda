"""Implements the commands, with one module for each."""
