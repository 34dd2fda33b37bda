"""The event loop: what it waits for, and how its time is shared."""
