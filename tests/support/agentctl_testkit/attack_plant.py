"""What an attack finds on the host, and whether it is still there afterwards."""

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

PLANTED_VARIABLE: Final = "PLANTED"


class Owner(Protocol):
    """Whose it is.

    ``identity``: arguments with which subprocess starts something of it.  ``agentctl``: a file
    of its installation.  ``beside``: starts another run (see `Plant.beside`).
    """

    name: str
    uid: int
    identity: dict[str, Any]
    agentctl: Path

    def beside(self, plant: "Plant") -> Mapping[str, Any]: ...


class Plant:
    """What one attack finds on the host: its caller's, except for the sockets.

    ``level`` is "outside" for a control.  Below ``directory``: ``workspace``, which the run
    may write to, and ``outside``, which it was not given, with ``secret`` (0600) and
    ``victim`` (0644).
    """

    def __init__(self, directory: Path, caller: Owner, level: str, token: str) -> None:
        self.directory = directory
        self.caller = caller
        self.level = level
        self.token = token
        self.undo = contextlib.ExitStack()
        self.workspace = directory / "workspace"
        self.outside = directory / "outside"
        self.secret = self.outside / "secret"
        self.victim = self.outside / "victim"
        for path in (directory, self.workspace, self.outside):
            path.mkdir(mode=0o755)
        self.secret.write_text(f"{token}\n")
        self.secret.chmod(0o600)
        self.victim.write_text("untouched\n")
        for path in (directory, self.workspace, self.outside, self.secret, self.victim):
            self.own(path)
        self._listen()
        # Its command line, its environment and a descriptor of it hold the secret.
        with self.secret.open() as secret:
            self.process = subprocess.Popen(
                [f"planted {token}", "600"],
                executable="/bin/sleep",
                env={PLANTED_VARIABLE: token},
                stdin=secret,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                **caller.identity,
            )
        self.undo.callback(self._end_process)
        self.facts: dict[str, Any] = {
            "caller": caller.name,
            "level": level,
            "workspace": str(self.workspace),
            "outside": str(self.outside),
            "secret": str(self.secret),
            "victim": str(self.victim),
            "victim_pid": self.process.pid,
            "tcp_port": self._port("tcp"),
            "tcp6_port": self._port("tcp6"),
            "udp_port": self._port("udp"),
            "abstract": self._abstract,
            "unix_path": str(self.outside / "socket"),
        }
        self._before = self._state()

    def own(self, path: Path) -> None:
        """Give *path* to the caller."""
        if os.geteuid() == 0:
            os.chown(path, self.caller.uid, self.caller.uid, follow_symlinks=False)

    def beside(self) -> Mapping[str, Any]:
        """Start another run of the caller's, at this level or outside at basic.

        Facts: ``other_pid`` on the host; ``other_workspace``, with the secret in ``note``;
        ``run``, its directory; ``home`` and ``control_socket`` of its supervisor.
        """
        return self.caller.beside(self)

    def plant(self, more: Mapping[str, Any]) -> None:
        """Add facts; what is on the host now is what has to be there afterwards."""
        self.facts |= more
        self._before = self._state()

    def harm(self) -> tuple[str, ...]:
        """What is not as it was planted, and who was called."""
        before, now = self._before, self._state()
        return tuple(
            f"{what}: {before.get(what, 'nothing')} became {now.get(what, 'nothing')}"
            for what in sorted(before.keys() | now.keys())
            if before.get(what) != now.get(what)
        )

    def close(self) -> None:
        """Remove all of it."""
        self.undo.close()
        shutil.rmtree(self.directory)

    # --- sockets

    def _listen(self) -> None:
        self._abstract = f"agentctl-attack-{secrets.token_hex(8)}"
        self.sockets: dict[str, socket.socket] = {}
        for name, family, kind, address in (
            ("tcp", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            ("tcp6", socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0)),
            ("udp", socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            ("abstract", socket.AF_UNIX, socket.SOCK_STREAM, f"\0{self._abstract}"),
            ("unix", socket.AF_UNIX, socket.SOCK_STREAM, str(self.outside / "socket")),
        ):
            with contextlib.suppress(OSError):  # a machine without IPv6
                listener = socket.socket(family, kind)
                self.undo.callback(listener.close)
                listener.setblocking(False)
                listener.bind(address)
                if kind == socket.SOCK_STREAM:
                    listener.listen(32)
                self.sockets[name] = listener
        (self.outside / "socket").chmod(0o666)

    def _port(self, name: str) -> int:
        return int(self.sockets[name].getsockname()[1]) if name in self.sockets else 0

    def _called(self, listener: socket.socket) -> bool:
        with contextlib.suppress(BlockingIOError):
            if listener.type == socket.SOCK_STREAM:
                listener.accept()[0].close()
            else:
                listener.recv(1)
            return True
        return False

    # --- state

    def _state(self) -> dict[str, object]:
        found: dict[str, object] = {}
        for path in (self.outside, *sorted(self.outside.rglob("*"))):
            found |= {f"{what} of {path}": value for what, value in _metadata(path)}
        found |= {f"victim's {what}": value for what, value in self._process_state()}
        for name, listener in self.sockets.items():
            found[f"calls of the {name} socket"] = self._called(listener)
        return found

    def _process_state(self) -> Iterator[tuple[str, object]]:
        pid = self.process.pid
        if self.process.poll() is not None:
            yield "end", self.process.returncode
            return
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        # Idle or waiting for a processor, but not stopped.
        yield "state", "stopped" if stat[0] in "Tt" else "alive"
        for what, field in (("group", 2), ("session", 3), ("nice", 16), ("policy", 38)):
            yield what, stat[field]
        for name in ("status", "limits", "oom_score_adj"):
            for line in Path(f"/proc/{pid}/{name}").read_text().splitlines():
                if name != "status" or line.startswith(_WATCHED):
                    yield f"{name}, {line[:20].partition(':')[0].strip()}", line

    def _end_process(self) -> None:
        self.process.kill()
        self.process.wait()


_WATCHED: Final = ("TracerPid", "Cpus_allowed:", "SigPnd", "ShdPnd")


def _metadata(path: Path) -> Iterator[tuple[str, object]]:
    status = path.lstat()
    yield "mode", oct(status.st_mode)
    yield "owner", (status.st_uid, status.st_gid)
    yield "links, size, mtime", (status.st_nlink, status.st_size, status.st_mtime_ns)
    for name in os.listxattr(path, follow_symlinks=False):
        yield name, os.getxattr(path, name, follow_symlinks=False)
    if path.is_symlink():
        yield "target", os.readlink(path)
    elif path.is_file():
        yield "content", path.read_bytes()[:4096]
