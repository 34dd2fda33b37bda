"""One file per kernel facility; everything privileged that a run needs, and nothing else.

Every call that the standard library does not have goes through `syscalls`, so
that this directory is the whole of what has to be audited.  Each act that needs
a privilege says why it is safe where it is done.

The modules know no runs, no sockets and no policy: who calls what in which
order is decided by warden, init and agent_process.
"""
