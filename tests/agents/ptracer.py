"""Three processes: one is traced, and held stopped, by its sibling.

Where tracing is forbidden the sibling says so (``tracer_refused``) and stays anyway.
"""

import ctypes
import os

from membership import Tree, ignore_all, stay

PTRACE_ATTACH = 16
PR_SET_PTRACER = 0x59616D61
PR_SET_PTRACER_ANY = -1

libc = ctypes.CDLL(None, use_errno=True)
tree = Tree()
victim = os.fork()
if victim == 0:
    libc.prctl(PR_SET_PTRACER, ctypes.c_ulong(PR_SET_PTRACER_ANY), 0, 0, 0)  # where Yama asks
    tree.up("traced")
    stay()
tree.wait_for(1)
if os.fork() == 0:
    ignore_all()
    os.setsid()
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    attached = libc.ptrace(PTRACE_ATTACH, victim, None, None) == 0
    if attached:
        os.waitpid(victim, 0x4000_0000)  # __WALL: returns when it is stopped
    tree.up("tracer" if attached else "tracer_refused")
    stay()
tree.complete(1)
