"""The policy of a run: its workspace, its view of the files, its environment and its network.

The modules read and decide.  Only `fresh_directories` makes anything.  The entry point is
`decision.decide`.
"""
