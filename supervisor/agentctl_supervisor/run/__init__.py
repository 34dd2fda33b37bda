"""One run, from its launch to its report."""
