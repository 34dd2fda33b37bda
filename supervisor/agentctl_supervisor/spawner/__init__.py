"""The spawner process, which forks runs, and the supervisor's handles on a run's keepers."""
