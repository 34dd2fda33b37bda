"""Handles text from and for people: durations, sizes, JSON, suggestions."""
