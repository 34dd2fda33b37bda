"""What the event loop waits on, and how its time is shared."""
