"""Six processes that differ in what a supervisor has to do to reach them.

``root``, and its children ``plain`` (same group), ``ignore`` (same group, ignores
SIGTERM and SIGINT), ``setsid`` (own session), ``double`` (daemon by double fork) and
``double_ignore`` (the same, ignoring).  Each reports every signal that reaches it;
those that do not ignore it then exit.  With the argument ``stubborn`` the root ignores too.
"""

import os
import signal

from membership import Tree, arguments, report, stay

tree = Tree()


def watch(role: str, *, ignore: bool) -> None:
    """Report the signals that reach *role*; leave on SIGTERM and SIGINT unless *ignore*."""

    def handle(number: int, _frame: object) -> None:
        report(f"got {role} {signal.Signals(number).name}")
        if not ignore and number in {signal.SIGTERM, signal.SIGINT}:
            os._exit(0)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCONT):
        signal.signal(number, handle)


def member(role: str, *, session: bool, daemon: bool, ignore: bool) -> None:
    """Fork a member of the tree."""
    if os.fork():
        return
    if session:
        os.setsid()
    if daemon and os.fork():
        os._exit(0)
    watch(role, ignore=ignore)
    tree.up(role)
    stay()


watch("root", ignore="stubborn" in arguments())
member("plain", session=False, daemon=False, ignore=False)
member("ignore", session=False, daemon=False, ignore=True)
member("setsid", session=True, daemon=False, ignore=False)
member("double", session=True, daemon=True, ignore=False)
member("double_ignore", session=True, daemon=True, ignore=True)
tree.complete(5)
