"""The private root of a run: a small read-only file system with the chosen parts of the host's.

It is made in a mount namespace of our own, so that it is never visible outside. It is gone when
the last process of the namespace is gone, however that process ends.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from agentctl_child.sandbox import beneath, device_directory, idmap, mount_api, syscalls
from agentctl_child.sandbox.descriptors import closing
from agentctl_child.sandbox.mountinfo import mounts
from agentctl_child.sandbox.mountpoints import Land, Mountpoints
from agentctl_protocol.spawning import Bind, Cover, Link, Part, Scratch, Text

_GONE: Final = (FileNotFoundError, NotADirectoryError)
#: The name by which `layers` recognises it in /proc/self/mountinfo.
SOURCE: Final = b"agentctl"
SHARED_MEMORY: Final = b"/dev/shm"
SHARED_MEMORY_BYTES: Final = 64 << 20
#: A small file takes a page of a tmpfs, and a directory entry is charged, too.
_ROOM_BYTES: Final = 8 << 20
_ROOM_INODES: Final = 16_384
#: The bytes per inode: small files fit, and empty files cannot fill the kernel's memory.
_BYTES_PER_INODE: Final = 4096
_MOST_INODES: Final = 262_144
_DIRECTORY: Final = 0o755
#: Files that give a process without privileges information or power: addresses and timings of the
#: kernel, keys by name, and files that only root's DAC protects.
_MASKED_IN_PROC: Final = (
    b"kallsyms",
    b"kcore",
    b"keys",
    b"key-users",
    b"kmsg",
    b"latency_stats",
    b"sched_debug",
    b"sysrq-trigger",
    b"timer_list",
)


class UnfitPartError(Exception):
    """A part of the view cannot be made as requested.

    The text describes the problem of ``path``. ``cause``: the kernel's error, if there was one.
    """

    def __init__(
        self, path: bytes, problem: str, hint: str = "", cause: OSError | None = None
    ) -> None:
        super().__init__(problem)
        self.path = path
        self.hint = hint
        self.cause = cause


@dataclass
class PrivateRoot:
    """Makes the root, and enters it.

    ``uid``, ``gid``: the run's ids, as seen from here. ``map_owners``: True if mapped binds are
    needed, because the run has another uid than the user who started it.
    """

    parts: Sequence[Part]
    uid: int
    gid: int
    map_owners: bool
    _open: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _finally_read_only: list[int] = field(default_factory=list)
    _namespaces: dict[tuple[int, int], int] = field(default_factory=dict)
    _stocked: int = 0
    _empty: int | None = None

    def enter(self) -> None:
        """Make the root and pivot into it.

        Raises OSError, UnfitPartError; then nothing stays open.
        """
        umask = os.umask(0)
        try:
            self._enter()
        finally:
            os.umask(umask)

    def _enter(self) -> None:
        with self._open:
            # First: from here on nothing that we do reaches the host.
            mount_api.stop_propagation()
            first = self._first_namespace()
            # Before anything is covered, so that every source is the host's.
            sources = self._open_sources()
            nodes = device_directory.open_nodes()
            for _, node in nodes:
                self._open.callback(os.close, node)
            self._make_proc(sources, first)
            self._make_holder()
            self._mountpoints = Mountpoints(self._root, self.uid, self.gid)
            self._open.callback(self._mountpoints.close)
            syscalls.call("mkdir", os.mkdir, b"proc", _DIRECTORY, dir_fd=self._root)
            self._mount(self._proc, b"proc")
            self._mountpoints.settle(b"/proc", Land(ours=False))
            device_directory.fill(self._root, nodes, self._mount)
            for part in self._all_parts():
                self._place(part, sources)
            for mount in (*self._finally_read_only, self._root):
                mount_api.restrict(mount, mount_api.READ_ONLY)
            self._mask_proc()
            mount_api.enter_root(self._root)

    # --- what it is made of -------------------------------------------------

    def _keep(self, descriptor: int) -> int:
        self._open.callback(os.close, descriptor)
        return descriptor

    def _open_sources(self) -> dict[bytes, int]:
        sources = {}
        for part in self.parts:
            if not isinstance(part, Bind):
                continue
            try:
                sources[part.path] = self._keep(beneath.open_place(part.path))
            except OSError as error:
                missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
                if not (part.optional and missing):
                    raise _unfit(part, error) from None
        return sources

    def _all_parts(self) -> Iterator[Part]:
        if not any(part.path == SHARED_MEMORY for part in self.parts):
            yield Scratch(path=SHARED_MEMORY, size_bytes=SHARED_MEMORY_BYTES, mode=0o1777)
        yield from self.parts

    def _make_holder(self) -> None:
        """Make a tmpfs with two directories: the root, and a stock of small files and covers.

        The stock is not in the root, so that it is not visible there.
        """
        room = _ROOM_BYTES + sum(
            len(part.data) + 4096 for part in self.parts if isinstance(part, Text)
        )
        holder = self._keep(
            mount_api.new_filesystem(
                b"tmpfs",
                mount_api.NO_SUID | mount_api.NO_DEV,
                {
                    b"source": SOURCE,
                    b"mode": b"755",
                    b"size": b"%d" % room,
                    b"nr_inodes": b"%d" % _ROOM_INODES,
                },
            )
        )
        # A directory that every machine has, and that is not needed here any more.
        mount_api.attach(holder, self._keep(beneath.open_place(b"/proc")))
        for name in (b"root", b"stock"):
            syscalls.call("mkdir", os.mkdir, name, _DIRECTORY, dir_fd=holder)
        self._stock = self._keep(beneath.open_beneath(holder, b"stock"))
        below = self._keep(beneath.open_beneath(holder, b"root"))
        self._root = self._keep(mount_api.clone_tree(below))
        mount_api.attach(self._root, below)

    def _first_namespace(self) -> idmap.Namespace | None:
        """Return the first id map namespace, or None if none is needed.

        Its process is forked here, while there is other work, because the fork takes a while.
        """
        if not self.map_owners or not any(
            isinstance(part, Bind) and part.mapped for part in self.parts
        ):
            return None
        return self._open.enter_context(idmap.Namespace())

    def _make_proc(self, sources: Mapping[bytes, int], first: idmap.Namespace | None) -> None:
        """Mount the /proc of our own pid namespace, which only a member of it can mount.

        It is read-only, because root could write to /proc/sys, in a user namespace too. It becomes
        read-only after the id maps have been written through it.
        """
        attributes = mount_api.NO_SUID | mount_api.NO_DEV | mount_api.NO_EXEC
        self._proc = self._keep(mount_api.new_filesystem(b"proc", attributes))
        if first is not None:
            for part in self.parts:
                if isinstance(part, Bind) and part.mapped and part.path in sources:
                    found = os.fstat(sources[part.path])
                    self._map_owner(found.st_uid, found.st_gid, first)
        mount_api.restrict(self._proc, mount_api.READ_ONLY)

    def _map_owner(self, uid: int, gid: int, first: idmap.Namespace) -> None:
        """Make one namespace for each owner, shared by all parts of this run."""
        if (uid, gid) in self._namespaces or (uid, gid) == (self.uid, self.gid):
            return
        uids = idmap.exchange(uid, self.uid, idmap.present("uid_map"))
        gids = idmap.exchange(gid, self.gid, idmap.present("gid_map"))
        made = self._open.enter_context(idmap.Namespace()) if self._namespaces else first
        self._namespaces[uid, gid] = self._keep(made.mapped(self._proc, uids, gids))

    def _mask_proc(self) -> None:
        for name in _MASKED_IN_PROC:
            try:
                place = beneath.open_beneath(self._proc, name)
            except FileNotFoundError:
                continue
            with closing(place):
                self._attach_copy(self._empty_file(), place)

    # --- one part after the other --------------------------------------------

    def _place(self, part: Part, sources: Mapping[bytes, int]) -> None:
        try:
            match part:
                case Bind():
                    if part.path in sources:
                        self._bind(part, sources[part.path])
                case Scratch():
                    self._scratch(part)
                case Cover():
                    with contextlib.suppress(*(_GONE if part.optional else ())):
                        self._cover(part)
                case Text():
                    self._text(part)
                case Link():
                    self._mountpoints.link(part.path, part.target)
        except OSError as error:
            raise _unfit(part, error) from None

    def _bind(self, part: Bind, source: int) -> None:
        found = os.fstat(source)
        with self._mountpoints.at(part.path, directory=stat.S_ISDIR(found.st_mode)) as place:
            exchanged = not self._mountpoints.land_around(part.path).ours and _differ(
                found, os.fstat(place)
            )
            if exchanged and part.writable:
                raise UnfitPartError(
                    part.path,
                    "was exchanged while the sandbox was being made",
                    "Somebody else is changing the workspace; try again.",
                )
            # A file that an editor has just replaced is protected in its new form.
            tree = mount_api.clone_tree(place if exchanged else source)
            with closing(tree):
                mount_api.restrict_tree(tree, _attributes(part))
                namespace = None if exchanged else self._namespace_for(part, found)
                if namespace is None or _is_mapped(tree, namespace):
                    mount_api.attach(tree, place)
                else:
                    self._bind_one_by_one(part, source, place, namespace)
        self._mountpoints.settle(part.path, Land(ours=False))

    def _namespace_for(self, part: Bind, found: os.stat_result) -> int | None:
        if not (part.mapped and self.map_owners):
            return None
        return self._namespaces.get((found.st_uid, found.st_gid))

    def _bind_one_by_one(self, part: Bind, source: int, place: int, namespace: int) -> None:
        """Bind a tree that cannot be mapped as a whole, as often on a network file system.

        A part that cannot be mapped is shown with its real owners. But the bound directory itself
        must be the run's.
        """
        above = part.path.rstrip(b"/") + b"/"
        places = {mount.place for mount in mounts(self._proc)}
        with closing(mount_api.clone_tree(source, recursive=False)) as tree:
            mount_api.restrict(tree, _attributes(part))
            try:
                mount_api.map_owners(tree, namespace, recursive=False)
            except OSError as error:
                raise UnfitPartError(
                    part.path,
                    "lies on a file system that cannot show its files as the run's own:"
                    f" {os.strerror(error.errno or 0)}",
                    "Use a workspace on another file system (ext4, xfs, btrfs, tmpfs), or run as"
                    " the user who owns it; --sandbox standard does without.",
                ) from None
            mount_api.attach(tree, place)
            for path in sorted(path for path in places if path.startswith(above)):
                # A mount that is covered by another, or has just gone, is out of reach anyway.
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    self._bind_beneath(part, path.removeprefix(above), source, tree, namespace)

    def _bind_beneath(
        self, part: Bind, path: bytes, source: int, tree: int, namespace: int
    ) -> None:
        with (
            closing(beneath.open_beneath(source, path)) as inner,
            closing(beneath.open_beneath(tree, path)) as place,
            closing(mount_api.clone_tree(inner, recursive=False)) as copy,
        ):
            mount_api.restrict(copy, _attributes(part))
            _is_mapped(copy, namespace)
            mount_api.attach(copy, place)

    def _scratch(self, part: Scratch) -> None:
        inodes = min(max(part.size_bytes // _BYTES_PER_INODE, 64), _MOST_INODES)
        with self._mountpoints.at(part.path, directory=True) as place:
            memory = mount_api.new_filesystem(
                b"tmpfs",
                mount_api.NO_SUID | mount_api.NO_DEV,
                {
                    b"source": SOURCE,
                    b"mode": b"%o" % part.mode,
                    b"size": b"%d" % part.size_bytes,
                    b"nr_inodes": b"%d" % inodes,
                    b"uid": b"%d" % self.uid,
                    b"gid": b"%d" % self.gid,
                },
            )
            with closing(memory):
                mount_api.attach(memory, place)
        self._mountpoints.settle(part.path, Land(ours=True, run_owns=True))

    def _cover(self, part: Cover) -> None:
        with self._mountpoints.at(part.path, directory=None) as place:
            if stat.S_ISDIR(os.fstat(place).st_mode):
                # Made read-only only at the end: another part may lie beneath.
                tree = self._keep(self._stock_directory())
                mount_api.attach(tree, place)
                self._finally_read_only.append(tree)
                self._mountpoints.settle(part.path, Land(ours=True))
            else:
                self._attach_copy(self._empty_file(), place)
                self._mountpoints.settle(part.path, Land(ours=False))

    def _text(self, part: Text) -> None:
        with self._mountpoints.at(part.path, directory=False) as place:
            self._attach_copy(self._stock_file(part.data), place)
        self._mountpoints.settle(part.path, Land(ours=False))

    # --- the stock -------------------------------------------------------------

    def _stock_name(self) -> bytes:
        self._stocked += 1
        return b"%d" % self._stocked

    def _stock_directory(self) -> int:
        """Return a mount of a new empty directory."""
        name = self._stock_name()
        syscalls.call("mkdir", os.mkdir, name, _DIRECTORY, dir_fd=self._stock)
        with closing(beneath.open_beneath(self._stock, name)) as entry:
            return mount_api.clone_tree(entry)

    def _stock_file(self, data: bytes) -> int:
        """Return a new file, open for reading."""
        name = self._stock_name()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        made = syscalls.call("open", os.open, name, flags, 0o444, dir_fd=self._stock)
        with closing(made) as descriptor:
            while data:
                data = data[syscalls.call("write", os.write, descriptor, data) :]
        return self._keep(beneath.open_beneath(self._stock, name))

    def _empty_file(self) -> int:
        if self._empty is None:
            self._empty = self._stock_file(b"")
        return self._empty

    def _attach_copy(self, entry: int, place: int) -> None:
        """Mount a file of the stock read-only, without showing where it lies."""
        with closing(mount_api.clone_tree(entry)) as tree:
            mount_api.restrict(tree, mount_api.READ_ONLY)
            mount_api.attach(tree, place)

    def _mount(self, tree: int, path: bytes) -> None:
        with closing(beneath.open_beneath(self._root, path)) as place:
            mount_api.attach(tree, place)


def _attributes(part: Bind) -> int:
    attributes = mount_api.NO_SUID
    if not part.writable:
        attributes |= mount_api.READ_ONLY
    if not part.device:
        attributes |= mount_api.NO_DEV
    return attributes


def _is_mapped(tree: int, namespace: int) -> bool:
    """Map the owners of a tree, all or none of it; return True if that was possible."""
    try:
        mount_api.map_owners(tree, namespace, recursive=True)
    except OSError as error:
        # EPERM: it is mapped already, or its file system belongs to another user namespace.
        if error.errno not in (errno.EINVAL, errno.EPERM):
            raise
        return False
    return True


def _differ(one: os.stat_result, other: os.stat_result) -> bool:
    """Return True if they are two files. Beneath another bind, a part is mounted upon itself."""
    return (one.st_dev, one.st_ino) != (other.st_dev, other.st_ino)


def _unfit(part: Part, error: OSError) -> UnfitPartError:
    hints: dict[int, str] = {
        errno.ENOENT: "It, or a directory that it should lie in, does not exist.",
        errno.ELOOP: "A symbolic link lies on the way: name the place that it leads to.",
        errno.EACCES: "The user who starts the run may not go there.",
        errno.ENOSPC: "The limit on mounts is reached (sysctl fs.mount-max).",
    }
    return UnfitPartError(
        part.path,
        f"cannot be made visible to the run: {error.strerror}",
        hints.get(error.errno or 0, ""),
        error,
    )
