"""From pieces that overlap to parts in order."""

import os
from pathlib import Path

import pytest

from agentctl_protocol.spawning import Bind, Cover, Link, Part, Scratch, Text
from agentctl_supervisor.policy.view import Gathered, Piece, Rank, as_it_is, private_root


def _bind(path: str, *, writable: bool = False, mapped: bool = False) -> Bind:
    return Bind(os.fsencode(path), writable=writable, mapped=mapped)


def _parts(*pieces: tuple[Part, Rank]) -> list[Part]:
    gathered = Gathered()
    for part, rank in pieces:
        gathered.put(Piece(part, "", rank))
    return list(private_root(gathered).parts)


def test_parents_come_before_what_lies_in_them() -> None:
    """A part is mounted on what is there by then; ``/a-b`` is no child of ``/a``."""
    parts = _parts(
        (_bind("/a/b/c"), Rank.SEEN),
        (_bind("/a-b"), Rank.SEEN),
        (Scratch(b"/a", size_bytes=1), Rank.SCRATCH),
    )
    assert [part.path for part in parts] == [b"/a", b"/a/b/c", b"/a-b"]


def test_what_is_shown_already_is_left_out() -> None:
    """Each part costs a mount."""
    parts = _parts(
        (_bind("/usr"), Rank.SEEN),
        (_bind("/usr/local/bin"), Rank.SEEN),
        (Link(b"/usr/x", b"y"), Rank.LINK),
        (Text(b"/usr/t", b""), Rank.SCRATCH),
    )
    assert parts == [_bind("/usr")]


def test_a_read_only_piece_of_the_workspace_stays_read_only() -> None:
    """And so does what would be hidden with its parent: that is held in place."""
    parts = _parts(
        (_bind("/w", writable=True, mapped=True), Rank.WORKSPACE),
        (_bind("/w/.git/hooks"), Rank.PROTECTED),
        (_bind("/w/a/b/code.py"), Rank.CODE),
    )
    assert parts == [
        _bind("/w", writable=True, mapped=True),
        _bind("/w/.git", writable=True, mapped=True),
        _bind("/w/.git/hooks", mapped=True),
        _bind("/w/a", writable=True, mapped=True),
        _bind("/w/a/b", writable=True, mapped=True),
        _bind("/w/a/b/code.py", mapped=True),
    ]


def test_a_writable_piece_of_a_read_only_one_is_writable() -> None:
    """A workspace beneath an installation; without pins, as nothing around it can be moved."""
    parts = _parts((_bind("/opt"), Rank.SEEN), (_bind("/opt/w", writable=True), Rank.WORKSPACE))
    assert parts == [_bind("/opt"), _bind("/opt/w", writable=True)]


@pytest.mark.parametrize(
    ("stronger", "weaker"),
    [(Rank.KEPT, Rank.NAMED), (Rank.NAMED, Rank.PROTECTED), (Rank.WORKSPACE, Rank.CODE)],
)
def test_the_stronger_of_two_pieces_at_one_path_counts(stronger: Rank, weaker: Rank) -> None:
    """Files of ours stay closed whatever is named; a name that is given opens the rest."""
    one, other = _bind("/x"), _bind("/x", writable=True)
    assert _parts((one, stronger), (other, weaker)) == [one]
    assert _parts((other, weaker), (one, stronger)) == [one]


def test_state_in_a_workspace_is_covered(tmp_path: Path) -> None:
    """And only there: elsewhere there is nothing to cover."""
    state = tmp_path / "deep" / "state"
    state.mkdir(parents=True)
    cover = Cover(os.fsencode(state))
    workspace = _bind(str(tmp_path), writable=True)
    pin = _bind(str(state.parent), writable=True)
    assert _parts((workspace, Rank.WORKSPACE), (cover, Rank.COVERED)) == [workspace, pin, cover]
    assert _parts((_bind("/usr"), Rank.SEEN), (cover, Rank.COVERED)) == [_bind("/usr")]


def test_links_on_the_way_are_there_too(tmp_path: Path) -> None:
    """Paths inside are paths outside, also those that a person writes."""
    real = tmp_path.resolve()
    (real / "versions/3").mkdir(parents=True)
    (real / "current").symlink_to("versions/3")
    gathered = Gathered()
    gathered.show(str(real / "current"), "", Rank.SEEN)
    assert set(private_root(gathered).parts) == {
        Link(os.fsencode(real / "current"), b"versions/3"),
        _bind(str(real / "versions/3")),
    }


def test_what_others_cannot_read_is_mapped_to_the_run(tmp_path: Path) -> None:
    """A run with a uid of its own reads an interpreter in a 0700 directory."""
    for name, mode in (("open", 0o755), ("closed", 0o700)):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(mode)
    gathered = Gathered()
    gathered.show(str(tmp_path / "open"), "", Rank.SEEN)
    gathered.show(str(tmp_path / "closed"), "", Rank.SEEN)
    mapped = {os.path.basename(p.path): p.mapped for p in private_root(gathered).parts}  # type: ignore[union-attr]
    assert mapped == {b"open": False, b"closed": True}


def test_at_standard_only_what_the_host_has_is_given() -> None:
    """Landlock has no links, texts or memory."""
    gathered = Gathered()
    for part, rank in (
        (_bind("/usr"), Rank.SEEN),
        (_bind("/usr/bin"), Rank.SEEN),
        (Link(b"/bin", b"usr/bin"), Rank.LINK),
        (Scratch(b"/tmp", size_bytes=1), Rank.SCRATCH),
        (Text(b"/etc/passwd", b""), Rank.SCRATCH),
    ):
        gathered.put(Piece(part, "", rank))
    assert as_it_is(gathered).parts == (_bind("/usr"),)


def test_at_standard_what_cannot_be_taken_out_is_named() -> None:
    """Rules only add: a protected name in a writable directory is not protected."""
    gathered = Gathered()
    gathered.put(Piece(_bind("/w", writable=True), "", Rank.WORKSPACE))
    gathered.put(Piece(_bind("/w/.git/hooks"), "git executes them", Rank.PROTECTED))
    gathered.put(Piece(Cover(b"/w/state"), "state", Rank.COVERED))
    view = as_it_is(gathered)
    assert view.parts == (_bind("/w", writable=True),)
    assert [piece.path for piece in view.changeable] == ["/w/.git/hooks", "/w/state"]


def test_a_link_that_a_run_may_have_made_opens_nothing(tmp_path: Path) -> None:
    """One that stays where runs can write is as good as any."""
    real = tmp_path.resolve()
    for name in ("workspace", "secret", "workspace/code"):
        (real / name).mkdir()
    (real / "workspace/out").symlink_to("../secret")
    (real / "workspace/in").symlink_to("code")
    (real / "way").symlink_to("secret")
    gathered = Gathered((str(real / "workspace"),))
    for name in ("workspace/out", "workspace/in", "way"):
        gathered.show(str(real / name), "", Rank.CODE)
    binds = [part.path for part in private_root(gathered).parts if isinstance(part, Bind)]
    assert binds == [os.fsencode(real / "secret"), os.fsencode(real / "workspace/code")]


def test_what_is_named_writable_is_writable_whole() -> None:
    """``--rw venv`` opens venv/bin, which is on PATH; not the agent's code, nor what is ours."""
    parts = _parts(
        (_bind("/w", writable=True), Rank.WORKSPACE),
        (_bind("/w/venv", writable=True), Rank.NAMED),
        (_bind("/w/venv/bin"), Rank.SEEN),
        (_bind("/w/venv/agent.py"), Rank.CODE),
        (_bind("/w/venv/ours"), Rank.KEPT),
        (_bind("/w/venv/shown"), Rank.NAMED),
        (_bind("/w/venv/shown/bin"), Rank.SEEN),
        (_bind("/w/other/bin"), Rank.SEEN),
    )
    read_only = [part.path for part in parts if isinstance(part, Bind) and not part.writable]
    assert read_only == [
        *(b"/w/other/bin", b"/w/venv/agent.py", b"/w/venv/ours", b"/w/venv/shown"),
    ]
