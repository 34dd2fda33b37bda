"""The start of detached runs, each with a supervisor process of its own."""
