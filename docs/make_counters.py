"""Writes ``shared-counters.md``: what the kernel counts for more than one run, as the code has it.

``python docs/make_counters.py`` rewrites it; a test fails when it is stale.
"""

from pathlib import Path
from typing import Final

from agentctl_protocol.shared_counters import COUNTERS

PAGE: Final = Path(__file__).resolve().parent / "shared-counters.md"

_TEXT: Final = """\
# Shared counters

What the kernel counts for more than one run, and what is done so that a run which takes all of it
harms nobody but itself. This page is written by `make_counters.py` from the table in
`agentctl_protocol/shared_counters.py`; a test fails when it is stale.

"Counts for" says who shares the counter with a run at strict or standard: of an ordinary user's,
"its user" means that all of that user's programs have what the run leaves. A user namespace
does not change that: it counts as well, and charges whoever made it. A run of root's has a uid of
its own, for which the kernel counts apart; at basic it has root's, whom most limits do not bind.

{table}

## What that rests on

* **Whatever a stop needs is there before the run begins**: keepers with their pidfds, the threads
  that sync logs and store reports, the thread that waits by poll(2). To end a run, nothing is
  forked.
* **A run gets less than we have.** The kernel compares what a *user* has in flight, queued or
  running with the limit of whoever wants more. So the lower limit of a run is a reserve for all
  others. `agentctl` raises its own soft limit on open files to the hard one, and gives the run the
  soft limit that it found; a program that embeds a supervisor keeps its own.
* **What is used up is named.** A run that cannot start is refused (exit 125) with the counter.

## What it cannot do

* **A uid of its own for an ordinary user's run** would separate all of these. A range in
  `/etc/subuid` could give one, but the workspace belongs to the caller: a run of another uid could
  not write there, and an ordinary user may not map the owners of a mount that is not its own
  (mount_setattr(2), `MOUNT_ATTR_IDMAP`).
* **Epoll watches are the user's.** While a run holds them all, no new program of that user's that
  needs epoll works, other runs included. Stop the run: `agentctl stop` does without. All of them
  are some hundred megabytes of kernel memory, and freeing them can outlast a kill by seconds.
* **A shell needs a process, too.** The reserve of processes is for that. It is kept by runs, not by
  other programs; where they fill the table, run `exec agentctl stop RUN` in a shell that is there.
* **Runs of several supervisors of root's** do not know of each other: each is given what is left
  when it starts. At basic, root's runs have no limit on processes at all.
"""


def page() -> str:
    """The whole page."""
    head = ("counter", "limit", "user's run counts for", "root's counts for", "a run may take")
    rows = [(*head, "when it is used up"), ("---",) * (len(head) + 1)]
    rows += [(one.name, one.limit, one.user, one.root, one.share, one.empty) for one in COUNTERS]
    return _TEXT.format(table="\n".join(f"| {' | '.join(row)} |" for row in rows))


if __name__ == "__main__":
    PAGE.write_text(page())
