"""The kernel facilities that a run needs: one file per facility, and nothing else.

Every call that the standard library lacks goes through `syscalls`, so that only this directory has
to be audited. At each act that needs a privilege, the code says why it is safe.

The modules know no runs, no sockets and no policy. Warden, init and agent_process decide which
functions are called in which order.
"""
