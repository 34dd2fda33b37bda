"""What could not be read is not "not there": where a protection is decided, it refuses the run."""

import contextlib
import errno
import fcntl
import os
import resource
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentctl_protocol.vocabulary import EXIT_OWN_FAILURE, Sandbox
from agentctl_supervisor.filesystem.mount_table import Mount
from agentctl_supervisor.filesystem.open_beneath import open_root
from agentctl_supervisor.policy import git_config, protected, untrusted_files
from agentctl_supervisor.policy.git_names import MOST
from agentctl_supervisor.policy.path_aliases import OtherNames
from agentctl_supervisor.policy.untrusted_files import UnreadableError
from agentctl_supervisor.workspace.exposure import exposed, names_now
from agentctl_testkit import ORDINARY_UID, ordinary_directory
from agentctl_testkit.policy import policy_in, read_only_in

READERS: dict[str, Callable[[str], object]] = {
    "beginning": lambda path: untrusted_files.beginning(path, 100),
    "whole": lambda path: untrusted_files.whole(path, 100),
    "status": untrusted_files.status,
    "is_there": untrusted_files.is_there,
    "entries": lambda path: list(untrusted_files.entries(path)),
}
EVERY_READER = pytest.mark.parametrize("read", READERS.values(), ids=READERS)


@pytest.fixture
def ours() -> Iterator[Path]:
    """A directory of an ordinary user's, who we are meanwhile."""
    place = ordinary_directory if os.geteuid() == 0 else _plain_directory
    with place() as directory, _as_ordinary_user():
        yield directory


@contextlib.contextmanager
def _plain_directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@contextlib.contextmanager
def _as_ordinary_user() -> Iterator[None]:
    if os.geteuid() != 0:
        yield
        return
    os.setegid(ORDINARY_UID)
    os.seteuid(ORDINARY_UID)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@contextlib.contextmanager
def leased(path: Path) -> Iterator[None]:
    """Hold a lease for writing, and give way to nobody."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    with path.open() as file:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        try:
            yield
        finally:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            signal.signal(signal.SIGIO, before)


@contextlib.contextmanager
def no_more_descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@EVERY_READER
def test_what_is_not_there_is_told_as_that(tmp_path: Path, read: Callable[[str], object]) -> None:
    """No such file, or something that is no directory on the way: nothing is raised."""
    (tmp_path / "file").write_text("")
    assert not read(str(tmp_path / "missing"))
    assert not read(str(tmp_path / "file/beneath"))


@EVERY_READER
def test_what_may_not_be_looked_at_could_be_anything(
    ours: Path, read: Callable[[str], object]
) -> None:
    """A directory that cannot be searched, a loop on the way, a name that is too long."""
    (ours / "closed").mkdir(mode=0)
    (ours / "loop").symlink_to("loop")
    for path, number in (
        (ours / "closed/x", errno.EACCES),
        (ours / "loop/x", errno.ELOOP),
        (ours / ("x" * 256), errno.ENAMETOOLONG),
    ):
        with pytest.raises(UnreadableError) as raised:
            read(str(path))
        assert raised.value.number == number
        assert str(path)[:60] in str(raised.value)
        assert raised.value.hint
        assert raised.value.exit_code == EXIT_OWN_FAILURE
    (ours / "closed").chmod(0o700)


@pytest.mark.parametrize("name", ["beginning", "whole"])
def test_what_is_no_file_could_say_anything(tmp_path: Path, name: str) -> None:
    """A FIFO, a socket, a directory, a device; nothing waits for any of them."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "directory").mkdir()
    with socket.socket(socket.AF_UNIX) as listener, contextlib.chdir(tmp_path):
        listener.bind("socket")
    for path in (tmp_path / "fifo", tmp_path / "socket", tmp_path / "directory", Path("/dev/null")):
        with pytest.raises(UnreadableError):
            READERS[name](str(path))


def test_what_is_too_long_is_not_half_believed(tmp_path: Path) -> None:
    """`whole` has all of it or raises."""
    (tmp_path / "file").write_bytes(b"x" * 101)
    assert untrusted_files.beginning(str(tmp_path / "file"), 100) == b"x" * 100
    with pytest.raises(UnreadableError, match="longer"):
        untrusted_files.whole(str(tmp_path / "file"), 100)


def test_a_lease_is_not_waited_for(tmp_path: Path) -> None:
    """It refuses at once, and says what it is; a blocking open(2) would take 45 s."""
    (tmp_path / "file").write_text("x")
    with leased(tmp_path / "file"), pytest.raises(UnreadableError, match="holds a lease"):
        untrusted_files.beginning(str(tmp_path / "file"), 100)


def test_without_descriptors_nothing_is_known(tmp_path: Path) -> None:
    """As when a machine's table of files is full: EMFILE is not "not there"."""
    (tmp_path / "file").write_text("x")
    table = [Mount(1, b"1:1", "/", "/a", "x"), Mount(2, b"1:1", "/", str(tmp_path), "x")]
    names = OtherNames(table)
    for read, path in (
        (READERS["beginning"], str(tmp_path / "file")),
        (READERS["entries"], str(tmp_path)),
        (names.of, str(tmp_path)),
        (names.mounted_in, "/"),
    ):
        with no_more_descriptors(), pytest.raises(UnreadableError):
            read(path)


# --- what hangs on it ---------------------------------------------------------


def _repository(workspace: Path) -> Path:
    git = workspace / ".git"
    (git / "hooks").mkdir(parents=True)
    (git / "modules/m/hooks").mkdir(parents=True)
    (git / "modules/m/HEAD").touch()
    (git / "config").write_text("[core]\n\thooksPath = ours\n")
    (workspace / "ours").mkdir()
    return git


def test_a_lease_on_gits_settings_refuses_the_next_run(workspace: Path) -> None:
    """And what they name is protected again when it is gone."""
    config = _repository(workspace) / "config"
    with leased(config), pytest.raises(UnreadableError, match=r"\.git/config.*lease"):
        policy_in(workspace)
    assert "ours" in read_only_in(policy_in(workspace), workspace)


@pytest.mark.parametrize("closed", [".git", ".git/modules", ".git/modules/m"])
def test_a_closed_directory_hides_no_name(ours: Path, closed: str) -> None:
    """One run takes away the right to search it, the next would give it back and write."""
    _repository(ours)
    (ours / closed).chmod(0)
    # Not the whole policy: as this user, the tests' own interpreter may be out of reach.
    with pytest.raises(UnreadableError, match=r"\.git.*ermission"):
        protected.names_in(str(ours))
    (ours / closed).chmod(0o700)
    assert "ours" in protected.names_in(str(ours))


@pytest.mark.parametrize(
    "content", [b"[core\n", b'[core]\nhooksPath = "x\n', b"hooksPath = x\n", b"x" * (1 << 21), None]
)
def test_settings_that_cannot_be_understood_refuse_the_run(
    workspace: Path, content: bytes | None
) -> None:
    """Not git's syntax, too long, a FIFO; unless the run may change them anyway."""
    config = _repository(workspace) / "config"
    config.unlink()
    if content is None:
        os.mkfifo(config)
    else:
        config.write_bytes(content)
    with pytest.raises(UnreadableError, match=r"\.git/config"):
        policy_in(workspace)
    policy_in(workspace, unprotect=(".git/config",))


def test_settings_are_followed_to_the_files_that_they_include(workspace: Path) -> None:
    """However deep, and in circles; those that cannot be read refuse the run."""
    config = _repository(workspace) / "config"
    config.write_text("[include]\npath = ../one\n")
    (workspace / "one").write_text('[includeIf "gitdir:x"]\npath = sub/two\n')
    (workspace / "sub").mkdir()
    (workspace / "sub/two").write_text("[include]\npath = ../one\n[core]\nhooksPath = ours\n")
    assert {"ours", "one", "sub/two"} <= read_only_in(policy_in(workspace), workspace)
    (workspace / "sub/two").unlink()
    os.mkfifo(workspace / "sub/two")
    with pytest.raises(UnreadableError, match="sub/two"):
        policy_in(workspace)


@pytest.mark.parametrize("kind", ["modules", "worktrees"])
def test_more_than_are_looked_at_are_protected_together(workspace: Path, kind: str) -> None:
    """A run that makes many cannot push one out of those that are looked at."""
    git = _repository(workspace)
    for number in range(MOST + 1):
        (git / f"{kind}/a{number:02}").mkdir(parents=True)
        (git / f"{kind}/a{number:02}/HEAD").touch()
    assert f".git/{kind}" in read_only_in(policy_in(workspace), workspace)
    policy_in(workspace, unprotect=(f".git/{kind}",))


def test_a_link_to_itself_is_no_way_to_hide_a_name(workspace: Path) -> None:
    """The last part of a name may be one, as any link: that is told."""
    (workspace / ".claude").symlink_to(".claude")
    assert dict(policy_in(workspace).exposed).keys() == {".claude"}
    (workspace / ".git").symlink_to(".git")
    with pytest.raises(UnreadableError):
        policy_in(workspace)


def test_a_project_file_that_is_none_stays_as_it_is(workspace: Path) -> None:
    """It may have settings of ours as soon as it is one."""
    os.mkfifo(workspace / "pyproject.toml")
    assert read_only_in(policy_in(workspace), workspace) == {"pyproject.toml"}


def test_what_a_run_closes_behind_itself_is_exposed(ours: Path) -> None:
    """A hook in a directory that cannot be searched any more is a hook."""
    (ours / ".git").mkdir()
    root = open_root(os.fsencode(ours))
    names = names_now(os.fsencode(ours), (), Sandbox.STRICT)
    assert exposed(root, 0, names) == []
    (ours / ".git/hooks").mkdir()
    (ours / ".git").chmod(0)
    assert b".git/hooks" in exposed(root, 0, names)
    (ours / ".git").chmod(0o700)
    os.close(root)


def test_a_link_that_stays_is_not_told_and_one_that_is_exchanged_is(tmp_path: Path) -> None:
    """Where a name is behind a link, it is the link's doing."""
    workspace, elsewhere = tmp_path / "workspace", tmp_path / "elsewhere"
    for directory in (workspace / ".git", elsewhere / "one", elsewhere / "two"):
        directory.mkdir(parents=True)
    (workspace / ".git/info").symlink_to(elsewhere / "one")
    root = open_root(os.fsencode(workspace))
    names = names_now(os.fsencode(workspace), (), Sandbox.STRICT)
    since = os.stat(tmp_path).st_ctime_ns + (1 << 62)
    assert exposed(root, since, names) == []
    (workspace / ".git/info").unlink()
    (workspace / ".git/info").symlink_to(elsewhere / "two")
    assert exposed(root, since, names) == [b".git/info/attributes"]
    os.close(root)


# --- git's syntax ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[core]\nhooksPath = a b # c\n", "a b"),
        ("[core] hooksPath=a\n", "a"),
        ("[CORE]\n\tHooksPath\t=\ta\t\n", "a"),
        ('[core]\nhooksPath = "a # b" c "; d" \n', "a # b c ; d"),
        ("[core]\nhooksPath = ho\\\noks\n", "hooks"),
        ("[core]\r\nhooksPath = a\r\n", "a"),
        ('[core]\nhooksPath = a\\tb\\"c\\\\\n', 'a\tb"c\\'),
        ("\ufeff[core]\nhooksPath = a", "a"),
        ("[core]\nhooksPath\n", ""),
        ('[a "b\\"]c"]\nx = 1\n[core]\nhooksPath = a\n', "a"),
        ("[core]\nhooksPath = a ;b\n;c\n", "a"),
        ('[core]\nhooksPath = " a "\n', " a "),
    ],
)
def test_settings_are_read_as_git_reads_them(text: str, value: str) -> None:
    """Quotes, escapes, comments, continued lines, in whatever spelling."""
    found = [one for one in git_config.settings(text) if one.section == "core"]
    assert [(one.key, one.value) for one in found] == [("hookspath", value)]


_WORDS = st.sampled_from(
    [
        *("[core]", '[a "b"]', "[a.B]", "[", "]", "hooksPath", "=", " ", "\t", "\n", "\r\n", '"'),
        *("\\", "\\n", "\\\n", "\\x", "#", ";", "value", "path", "-", "_", "1", "x", '[a "\\"]'),
    ]
)


@given(st.lists(_WORDS, max_size=14).map("".join))
def test_nothing_is_understood_that_git_does_not_understand_so(text: str) -> None:
    """What git says of a text is what we say of it, or we refuse to say anything."""
    told = subprocess.run(
        ["git", "config", "--list", "-z", "--file", "-"],
        input=text.encode(),
        capture_output=True,
        check=False,
    )
    try:
        ours = list(git_config.settings(text))
    except git_config.SyntaxFaultError:
        return  # stricter than git is safe
    assert told.returncode == 0, told.stderr
    theirs = [entry.partition(b"\n") for entry in told.stdout.split(b"\0") if entry]
    assert [(one.key, one.value) for one in ours] == [
        (name.decode().rpartition(".")[2], value.decode()) for name, _, value in theirs
    ]
