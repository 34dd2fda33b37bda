"""The gate: grants or refuses each model and tool call."""
