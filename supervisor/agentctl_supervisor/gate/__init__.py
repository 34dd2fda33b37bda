"""Permission for each model and tool call."""
