"""``agentctl run`` in a sandbox, for root and for an ordinary user: state, home and workspace."""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from agentctl_testkit import ORDINARY_UID, AgentctlHome, Finished
from agentctl_testkit.ordinary import Installation, OrdinaryHome


class Sandboxed:
    """Somebody with a home directory and a workspace in it, who starts runs.

    ``ours``: what the workspace's files belong to.  ``home``: the state directory's.
    """

    def __init__(self, directory: Path, home: AgentctlHome, *, ordinary: bool) -> None:
        self.directory = directory
        self.home = home
        self.ordinary = ordinary
        self.uid = ORDINARY_UID if ordinary else os.geteuid()
        self.workspace = self.make("workspace")

    def __repr__(self) -> str:
        return f"<Sandboxed in {self.directory}>"

    def make(self, name: str, text: str | None = None, mode: int = 0o755) -> Path:
        """A directory of the caller's, or a file with *text*, at the relative path *name*."""
        assert not Path(name).is_absolute(), "it would change the machine's own directories"
        path = self.directory
        *above, last = Path(name).parts
        for part in above:
            path /= part
            path.mkdir(exist_ok=True)
            os.chown(path, self.uid, self.uid)
        path /= last
        if text is None:
            path.mkdir(exist_ok=True)
        else:
            path.write_text(text)
        path.chmod(mode)
        os.chown(path, self.uid, self.uid)
        return path

    def run(
        self,
        *arguments: str,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Finished:
        """``agentctl ARGUMENTS`` in the workspace, or in *cwd*."""
        return self.home.run(
            *arguments,
            cwd=cwd or self.workspace,
            environment={"HOME": str(self.directory), **(environment or {})},
            as_ordinary_user=self.ordinary,
        )

    def shell(self, script: str, *options: str, level: str = "strict") -> Finished:
        """``agentctl run --sandbox LEVEL OPTIONS -- sh -c SCRIPT``."""
        return self.run("run", "--sandbox", level, *options, "--", "sh", "-c", script)


@contextlib.contextmanager
def sandboxed(installation: Installation | None) -> Iterator[Sandboxed]:
    """A caller with nothing but its own: the user of *installation*, or ourselves."""
    above = installation.directory if installation is not None else Path("/tmp")
    directory = above / f"agentctl-home-{secrets.token_hex(6)}"
    directory.mkdir(mode=0o700)
    state = directory / "state"
    home: AgentctlHome
    if installation is not None:
        os.chown(directory, ORDINARY_UID, ORDINARY_UID)
        home = OrdinaryHome(installation, state)
    else:
        home = AgentctlHome(state)
    try:
        yield Sandboxed(directory.resolve(), home, ordinary=installation is not None)
    finally:
        shutil.rmtree(directory)
