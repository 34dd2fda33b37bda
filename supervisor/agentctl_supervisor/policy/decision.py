"""Decide the policy of one run from its specification and the state of the host."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from agentctl_protocol.shell_words import shell_word
from agentctl_protocol.spawning import Bind, Cover, Link, Part, Scratch, Text
from agentctl_protocol.spec import RunSpec, SpecError, split_target
from agentctl_protocol.vocabulary import CONFINED, Network, Sandbox
from agentctl_supervisor.policy import (
    accounts,
    environment,
    program,
    protected,
    shared_view,
    sockets,
    system_view,
)
from agentctl_supervisor.policy.caller import caller
from agentctl_supervisor.policy.code_root import code_root
from agentctl_supervisor.policy.links import cut_short, follow, is_beneath, leads_out
from agentctl_supervisor.policy.own_files import refuse_second_names
from agentctl_supervisor.policy.unseen_files import unseen_files
from agentctl_supervisor.policy.unsuitable_directories import refuse_broad
from agentctl_supervisor.policy.untrusted_files import (
    UnreadableError,
    is_directory,
    is_there,
    whole,
)
from agentctl_supervisor.policy.view import (
    Gathered,
    Piece,
    Rank,
    View,
    as_it_is,
    belongs_to_another,
    private_root,
)
from agentctl_supervisor.policy.workspace import Workspace, choose, look

TMP_BYTES: Final = 1 << 30
HOME_BYTES: Final = 1 << 30
RUN_BYTES: Final = 16 << 20

_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
_CONFIG_BYTES: Final = 1 << 20
_OWN_HOME: Final = "/home/agent"
_KEPT_BY_ALL_NAMES: Final = (Rank.CODE, Rank.PROTECTED, Rank.KEPT, Rank.COVERED)


@dataclass(frozen=True)
class Policy:
    """The policy of a run.  At basic and none, a run gets all of the caller's; ``view`` is empty.

    ``argv``, ``env``, ``cwd``: the values at the start.  ``tmp``, ``home``: the run's directories.
    ``to_make``: own directories that the supervisor makes in the run directory before the start.
    ``exposed``: pairs of a path that should be protected but cannot be, and the reason.
    ``unseen``: pairs of a variable and a path in its value that exists but is not in the view.
    """

    level: Sandbox
    network: Network
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    uid: int
    workspace: Workspace | None = None
    view: View = View(())  # noqa: RUF009 - frozen
    tmp: str = ""
    home: str = ""
    to_make: tuple[str, ...] = ()
    exposed: tuple[tuple[str, str], ...] = ()
    unseen: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Ground:
    """The surroundings that a run is started from.

    ``here``: the supervisor's working directory, absolute.
    ``run_directory``: the directory with the files that are kept of the run.
    ``own_uid``: the run's uid and gid on the host, if the run has its own.
    """

    environ: Mapping[str, str]
    here: str
    run_directory: str
    own_uid: int | None = None

    @property
    def uid(self) -> int:
        """The run's uid."""
        return os.getuid() if self.own_uid is None else self.own_uid

    @property
    def gid(self) -> int:
        """The run's gid."""
        return os.getgid() if self.own_uid is None else self.own_uid


def decide(spec: RunSpec, ground: Ground) -> Policy:
    """Return the policy for the run of *spec*, in which level and network are already set.

    Raises:
        SpecError: a path that was asked for does not exist, or gives the run too much.
        UnreadableError: a path that decides a protection cannot be read.
    """
    level, network = spec.sandbox, spec.net
    assert level is not None
    assert network is not None
    if level not in CONFINED:
        return Policy(
            level=level,
            network=network,
            argv=tuple(spec.argv or ()),
            env=_whole_environment(spec, ground, level),
            cwd=ground.here,
            uid=ground.uid,
        )
    return _Confined(spec, ground, level, network).policy()


def usual_workspace(cwd: str, environ: Mapping[str, str]) -> Workspace:
    """Return the workspace of a run in *cwd* that names none; the path of a fresh one is ``/``."""
    known = caller(environ)
    here = look(cwd, known.names)
    return choose(None, here, "/", places=known.places, reserved=known.reserved)


def _whole_environment(spec: RunSpec, ground: Ground, level: Sandbox) -> dict[str, str]:
    if spec.env is not None:
        return dict(spec.env)
    return environment.inherited(level, ground.environ)


class _Confined:
    """The decision at strict and standard, step by step."""

    def __init__(self, spec: RunSpec, ground: Ground, level: Sandbox, network: Network) -> None:
        self._spec, self._ground, self._level, self._network = spec, ground, level, network
        known = caller(ground.environ)
        self._names, self._places, self._ours, self._reserved = known
        refuse_second_names()
        protected.check(spec.unprotect)
        here = look(ground.here, self._names)
        self._here = here.real
        asked = None
        if spec.workspace is not None:
            full = self._own_choice("--workspace", spec.workspace, (here.real,))
            asked = look(full, self._names)
        self._workspace: Final = choose(
            asked,
            here,
            os.path.join(ground.run_directory, "workspace"),
            places=self._places,
            reserved=self._reserved,
        )
        self._opened: Final[list[str]] = []
        self._gathered: Final = Gathered(self._writable_by_runs(here.real))
        self._env: Final = _whole_environment(spec, ground, level)
        self._exposed: list[tuple[str, str]] = []
        self._home = os.path.join(ground.run_directory, "home")
        self._tmp = os.path.join(ground.run_directory, "tmp")
        if level is Sandbox.STRICT:
            self._home, self._tmp = self._home_inside(), "/tmp"

    def _writable_by_runs(self, here: str) -> tuple[str, ...]:
        """Return the directories that this run can write to, or that earlier runs may have."""
        found = list(self._writable_now)
        if not self._places.why_no_workspace(here):
            found.append(here)
        return self._names.with_all(found)

    @cached_property
    def _writable_now(self) -> tuple[str, ...]:
        named = (os.path.realpath(os.path.join(self._ground.here, path)) for path in self._spec.rw)
        return self._names.with_all((self._workspace.path, *named))

    def _own_choice(self, option: str, path: str, writable: tuple[str, ...]) -> str:
        """Return the absolute form of *path*, the value of *option*.

        Raises:
            SpecError: a link in *writable*, which a run may have made, leads out of *writable*.
        """
        full = os.path.abspath(os.path.join(self._ground.here, path))
        fit = self._names.with_all(d for d in writable if not self._places.why_no_workspace(d))
        try:
            followed = follow(full)
        except OSError:
            return full
        if leads_out(followed, fit):
            raise SpecError(
                f"{option} {cut_short(path)} is a link that a run may have made",
                f"if it is meant: {option} {cut_short(followed.real)}",
            )
        return full

    def policy(self) -> Policy:
        workspace = self._workspace
        self._gathered.put_all(shared_view.system(self._network))
        argv = self._program()
        python_path = self._env.get("PYTHONPATH", "")
        path = self._env.get("PATH", "")
        self._gathered.put_all(
            shared_view.searched(path, python_path, self._places, self._gathered.writable)
        )
        self._writable()
        self._gathered.put_all(self._ours)
        self._keep_imports()
        self._keep_other_names()
        self._cover_sockets()
        if self._level is Sandbox.STRICT:
            self._own_parts()
            view = private_root(self._gathered)
        else:
            self._host_parts()
            view = as_it_is(self._gathered)
            self._refuse_changeable(view)
        to_make = [workspace.path] if workspace.private else []
        if self._level is Sandbox.STANDARD:
            to_make += [self._home, self._tmp]
        name = accounts.AGENT
        if self._ground.own_uid is None:
            name = accounts.caller_name(self._ground.uid)
        own = {
            "HOME": self._home,
            "LOGNAME": name,
            "PWD": workspace.cwd,
            "TMPDIR": self._tmp,
            "USER": name,
        }
        return Policy(
            level=self._level,
            network=self._network,
            argv=argv,
            env={**own, **self._env},
            cwd=workspace.cwd,
            uid=self._ground.uid,
            workspace=workspace,
            view=view,
            tmp=self._tmp,
            home=self._home,
            to_make=tuple(to_make),
            exposed=tuple(self._exposed),
            unseen=tuple(unseen_files(self._spec.env or {}, view)),
        )

    # --- what it sees ------------------------------------------------------

    def _program(self) -> tuple[str, ...]:
        spec = self._spec
        where = program.Surroundings(
            path=self._env.get("PATH", os.defpath),
            here=self._ground.here,
            there=self._workspace.cwd,
            places=self._places,
            writable=self._gathered.writable,
        )
        found = program.Program(())
        if spec.argv is not None:
            found = program.look_up(spec.argv, where)
        elif spec.python is not None:
            found = program.interpreter(spec.python, where)
        for path in found.needs:
            self._gathered.show(path, "what the program is installed in", Rank.SEEN)
        for path in found.code:
            self._gathered.show(path, "the program", Rank.CODE)
        for path in found.named:
            self._show_beside(path, "beside the program")
        if spec.target is not None:
            code = self._function(spec.target)
            for path in code:
                self._gathered.show(path, "the agent's code", Rank.CODE)
            for path in code[:1]:
                self._show_beside(path, "beside the agent's code")
        return found.argv if spec.argv is not None else ()

    def _show_beside(self, path: str, why: str) -> None:
        """Show the code directory of the file *path*, unless the run can write around the file."""
        try:
            followed = follow(path)
        except OSError:
            return
        if leads_out(followed, self._gathered.writable) or any(
            is_beneath(followed.real, directory) for directory in self._writable_now
        ):
            return
        root = code_root(followed.real, path, self._places, self._names)
        if root is not None:
            self._gathered.show(root, why, Rank.SEEN)

    def _function(self, target: str) -> list[str]:
        where, _ = split_target(target)
        if where.endswith(".py"):
            return [os.path.join(self._ground.here, where)]
        paths = (self._ground.here, *shared_view.entries(self._env.get("PYTHONPATH", "")))
        return next(filter(None, (program.module_code(where, path) for path in paths)), [])

    # --- what it may write to ----------------------------------------------

    def _writable(self) -> None:
        workspace = self._workspace
        bind = Bind(os.fsencode(workspace.path), writable=True, mapped=True)
        self._gathered.put(Piece(bind, "the workspace", Rank.WORKSPACE))
        self._named("--ro", self._spec.ro, writable=False)
        self._named("--rw", self._spec.rw, writable=True)
        if not workspace.private:
            self._protect_names(workspace.path)
        for path in self._opened:
            self._protect_names(path)

    def _named(self, option: str, paths: tuple[str, ...], *, writable: bool) -> None:
        for path in paths:
            full = self._own_choice(option, path, (self._workspace.path, self._here))
            shown = cut_short(path)
            try:
                real = follow(full).real
                is_directory = os.path.isdir(real)
            except OSError as error:
                raise SpecError(
                    f"{option} {shown}: {os.strerror(error.errno or 0)}",
                    "it has to be there before the run",
                ) from None
            others = self._names.of(real)
            refuse_broad(real, option, self._places, (*others, *self._names.held_in(real)))
            if not is_directory and not os.path.isfile(real):
                sockets.refuse_unusable(self._level, option, real, shown, writable=writable)
            there = self._gathered.pieces.get(real)
            if there is not None and there.writable != writable and there.rank >= Rank.WORKSPACE:
                raise SpecError(
                    f"{option} {shown} is to be writable and read-only at once",
                    "name it once",
                )
            why, hint = self._reserved.why_not(real, others) if writable else ("", "")
            if why:
                raise SpecError(
                    f"{option} {shown} is {why}",
                    hint or "make the run an environment of its own: python3 -m venv",
                )
            if writable and not os.access(real, os.W_OK):
                raise SpecError(
                    f"{option} {shown} cannot be written to", f"ls -ld {shell_word(full)}"
                )
            if writable and is_directory and not is_beneath(real, self._workspace.path):
                self._opened.append(real)
            self._gathered.show(full, option, Rank.NAMED, writable=writable, mapped=True)

    def _cover_sockets(self) -> None:
        """Cover services' sockets that no option names, if the run is at strict without network."""
        if self._level is not Sandbox.STRICT or self._network is Network.HOST:
            return
        pieces = self._gathered.pieces
        binds = {path: piece for path, piece in pieces.items() if isinstance(piece.part, Bind)}
        given = [
            path
            for path, piece in binds.items()
            if piece.rank in (Rank.WORKSPACE, Rank.NAMED)
            and not (self._workspace.private and path == self._workspace.path)
        ]
        for path in sockets.found(given, binds):
            if path not in pieces:
                cover = Cover(os.fsencode(path), optional=True)
                self._gathered.put(Piece(cover, sockets.WHY, Rank.COVERED))

    def _keep_imports(self) -> None:
        """Keep read-only what decides about agentctl's imports, inside all writable directories."""
        around = [piece.path for piece in self._gathered.all() if piece.writable]
        for path in self._reserved.around(around):
            self._gathered.show(path, "it decides what agentctl itself does", Rank.KEPT)

    def _keep_other_names(self) -> None:
        """Keep read-only paths read-only under their other names (mount points), too."""
        pieces = self._gathered.all()
        writable = tuple(piece.path for piece in pieces if piece.writable)
        for directory in writable:
            for point in self._names.mounted_in(directory):
                self._keep_mount(point)
        for piece in pieces:
            if piece.writable or piece.rank not in _KEPT_BY_ALL_NAMES:
                continue
            for path in (piece.path, *self._names.mounted_in(piece.path)):
                for name in self._names.of(path, writable):
                    self._gathered.put(piece.at(name))

    def _keep_mount(self, point: str) -> None:
        """Protect the mount at *point* if another name of it is agentctl's or the system's."""
        for name in self._names.of(point):
            if self._places.why_state(name):
                cover = Cover(os.fsencode(point))
                self._gathered.put(Piece(cover, "agentctl's state", Rank.COVERED))
            elif self._places.why_kept(name) or self._reserved.why_not(name).why:
                self._gathered.show(point, f"another name of {name}", Rank.KEPT)

    def _protect_names(self, directory: str) -> None:
        """Protect the files that other programs obey in the writable *directory*."""
        for name, why in protected.names_in(directory, self._spec.unprotect).items():
            path = os.path.join(directory, name)
            if not is_there(path):
                continue
            if name == ".git" and is_directory(path):
                continue
            if name == protected.CONFIGURATION and not _configures_agentctl(path):
                continue
            self._protect(directory, path, why)

    def _protect(self, directory: str, path: str, why: str) -> None:
        if _leads_elsewhere(path):
            told = path.removeprefix(self._workspace.path.rstrip("/") + "/")
            self._exposed.append((told, "a link cannot be protected"))
            return
        # A file of another user is not mapped to the run's uid.  Example: root starts a run in
        # a user's directory, and a key in it belongs to root.  The run must not read that key.
        mapped = not belongs_to_another(path, directory)
        self._gathered.put(Piece(Bind(os.fsencode(path), mapped=mapped), why, Rank.PROTECTED))

    # --- its own -----------------------------------------------------------

    def _home_inside(self) -> str:
        """Return the run's home at strict: the caller's path if a directory can be put there."""
        home = self._places.home
        # A uid that is not in the user database has "/" as its home, as in many containers.
        if home in {"/", "/dev", "/proc"} or not os.path.isdir(home):
            return _OWN_HOME
        if self._places.why_no_workspace(home) == "the system's":
            return _OWN_HOME
        return home

    def _own_parts(self) -> None:
        uid, gid = self._ground.uid, self._ground.gid
        name = accounts.AGENT
        if self._ground.own_uid is None:
            name = accounts.caller_name(uid)
        shell = self._env.get("SHELL", "/bin/sh")
        parts: list[tuple[Part, str]] = [
            (Scratch(b"/tmp", size_bytes=TMP_BYTES, mode=0o1777), "its own /tmp"),
            (Scratch(os.fsencode(self._home), size_bytes=HOME_BYTES), "its own home"),
            (Scratch(b"/run", size_bytes=RUN_BYTES, mode=0o755), "its own /run"),
            (Scratch(b"/var/tmp", size_bytes=TMP_BYTES, mode=0o1777), "its own /var/tmp"),
            (Text(b"/etc/passwd", accounts.passwd(uid, gid, name, self._home, shell)), "itself"),
            (Text(b"/etc/group", accounts.group(gid, name)), "itself"),
            (Link(b"/etc/mtab", b"/proc/self/mounts"), "its own mounts"),
        ]
        if self._network is Network.NONE:
            parts.append((Text(os.fsencode(system_view.HOSTS), accounts.HOSTS), "its own loopback"))
        else:
            self._gathered.show(system_view.HOSTS, "the network", Rank.SEEN, mapped=False)
        # Keep the links in the paths that the user writes, so that these paths work in the run.
        for path in (self._ground.here, self._ground.environ.get("HOME", "")):
            parts += [(link, "a link on the way") for link in _links(path)]
        for part, why in parts:
            self._gathered.put(Piece(part, why, Rank.SCRATCH))

    def _host_parts(self) -> None:
        for path in ("/etc/passwd", "/etc/group", system_view.HOSTS, "/proc"):
            self._gathered.show(path, "the system", Rank.SEEN, mapped=False)
        for name in _DEVICES:
            bind = Bind(f"/dev/{name}".encode(), writable=True, device=True, optional=True)
            self._gathered.put(Piece(bind, "a device", Rank.SEEN))
        for path, why in ((self._home, "its own home"), (self._tmp, "its own /tmp")):
            bind = Bind(os.fsencode(path), writable=True, own=True)
            self._gathered.put(Piece(bind, why, Rank.WORKSPACE))

    def _refuse_changeable(self, view: View) -> None:
        """Refuse, or list as exposed, the pieces that standard cannot exclude from a directory."""
        for piece in view.changeable:
            if piece.rank >= Rank.KEPT:
                raise SpecError(
                    f"at standard {piece.path} ({piece.why}) cannot be kept from a run that is "
                    "given a directory around it",
                    "--workspace DIR without it, or --sandbox strict",
                )
            self._exposed.append((piece.path, "standard cannot protect it"))


def _links(path: str) -> list[Link]:
    try:
        links = follow(path).links if path.startswith("/") else ()
    except OSError:
        return []
    return [Link(os.fsencode(place), os.fsencode(target)) for place, target in links]


def _leads_elsewhere(path: str) -> bool:
    try:
        return os.path.realpath(path, strict=True) != path
    except OSError:  # a dangling link, or a link that another run is replacing now
        return True


def _configures_agentctl(path: str) -> bool:
    try:
        data = whole(path, _CONFIG_BYTES)
    except UnreadableError:
        return True  # it may have settings for agentctl: protect it
    return data is not None and protected.has_settings(data)
