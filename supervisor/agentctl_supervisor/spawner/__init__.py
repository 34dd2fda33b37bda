"""The process that forks runs, and the keepers of a run as the supervisor holds them."""
