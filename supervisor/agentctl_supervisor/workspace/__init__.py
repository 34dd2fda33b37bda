"""Find what a run changed in the directories that it could write to, without trusting them.

The run has ended by then, but it chose what it left: links, endless nesting, names with terminal
control characters.  Another run in the same workspace may be alive and hostile.
"""
