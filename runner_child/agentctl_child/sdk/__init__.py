"""The code inside an agent's process: the channel, the ``run`` object, cancellation, modes."""
