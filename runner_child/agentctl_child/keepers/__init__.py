"""The trusted processes around a run (spawner, warden, init) and the confinement of the agent."""
