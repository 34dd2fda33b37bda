"""The stop of a run: the ladder, its execution, and a stop in place of a stuck supervisor."""
