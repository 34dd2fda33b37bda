"""Settings from files and the environment, below those of the command line.

`files` finds and reads, `settings` says what there is to set, `profiles` merges, and
`trust` says what a file that a run can write may not ask for.
"""
