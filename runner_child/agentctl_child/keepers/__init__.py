"""The trusted processes around a run: spawner, warden, init, and what they take from an agent."""
