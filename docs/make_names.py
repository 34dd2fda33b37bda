"""Write ``protected-names.md`` from the table of names that other programs obey.

``python docs/make_names.py`` rewrites it; a test fails when it is stale.
"""

from itertools import groupby
from pathlib import Path
from typing import Final

from agentctl_supervisor.policy.obeyed_names import OBEYED

PAGE: Final = Path(__file__).resolve().parent / "protected-names.md"
_HEAD: Final = """\
# Names that other programs obey

Made by `docs/make_names.py` from `policy/obeyed_names.py`.

A program obeys these without being asked to: it was started, or entered the directory, for another
purpose. So no run may change those that are at the top of its workspace, or of a directory that
`--rw` opens for it; `--unprotect NAME` frees one. In a directory that is itself a repository
(`--rw REPO/.git`), the names behind `.git/` are protected.

What could not be protected is told after the run and listed in its report as `exposed`: a name that
was not there before, one that is a link, any of them at `standard`, and further down in the
workspace those marked *anywhere*, whether they were there or not. So is a directory that git would
take for a repository, whatever it is called. Inside `node_modules`, `venv` and the like only
version control counts: packages bring the other names along by the thousand.

| name | counts | what obeys it |
|---|---|---|
"""


def page() -> str:
    """Return the whole page."""
    rows = []
    for (why, anywhere), names in groupby(OBEYED, lambda obeyed: (obeyed.why, obeyed.anywhere)):
        listed = ", ".join(f"`{obeyed.name}`" for obeyed in names)
        rows.append(f"| {listed} | {'anywhere' if anywhere else 'at the top'} | {why} |\n")
    rows.append(
        "| `pyproject.toml` | at the top | with settings for agentctl in it: agentctl obeys it |\n"
    )
    return _HEAD + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page())
