"""Read settings from files and the environment; those of the command line take precedence.

`files` finds and reads the files.  `settings` has the table of settings.  `profiles` merges the
settings.  `trust` decides what a file that a run can write may not ask for.
"""
