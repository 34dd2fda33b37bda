"""What a run is given: its workspace, what it sees, its environment and its network.

Everything here reads and decides; nothing is made.  `decision.decide` is the whole of it.
"""
