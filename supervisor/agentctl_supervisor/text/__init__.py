"""Text for people and from people: durations, sizes, JSON, suggestions."""
