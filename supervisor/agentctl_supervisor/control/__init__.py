"""The control socket: how clients reach a supervisor."""
