"""A state directory that somebody else could exchange is not used; one that only we can, is."""

import os
import stat
from pathlib import Path

import pytest

from agentctl_supervisor.errors import StateDirectoryError
from agentctl_supervisor.filesystem.path_trust import check_ours
from agentctl_supervisor.filesystem.state_paths import state_root
from agentctl_supervisor.store.run_directory import Home
from agentctl_testkit import ORDINARY_UID
from agentctl_testkit.capabilities import Capability, needs


@pytest.mark.parametrize("mode", [0o777, 0o772, 0o1777])
def test_a_directory_that_others_may_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    """Also a sticky one: they could put something there before us."""
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(mode)
    with pytest.raises(StateDirectoryError, match="others can write into it") as caught:
        check_ours(state)
    assert f"chmod go-w {state}" in caught.value.hint


@pytest.mark.parametrize(
    ("mode", "is_fine"), [(0o777, False), (0o1777, True), (0o755, True), (0o703, False)]
)
def test_so_is_one_in_a_directory_where_others_can_exchange_it(
    tmp_path: Path, mode: int, is_fine: bool
) -> None:
    """There or not; the sticky bit keeps what is ours in its place."""
    above = tmp_path / "above"
    (above / "state").mkdir(parents=True)
    above.chmod(mode)
    for state in (above / "state", above / "not/there"):
        if is_fine:
            check_ours(state)
            continue
        with pytest.raises(StateDirectoryError, match=f"others can write into {above}$"):
            check_ours(state)


def test_a_link_of_ours_is_followed_to_what_it_leads_to(tmp_path: Path) -> None:
    """And what that is, is looked at as well."""
    real = tmp_path / "real"
    (real / "state").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "loop").symlink_to("loop")
    check_ours(tmp_path / "link/state")
    real.chmod(0o777)
    for path in (tmp_path / "link/state", tmp_path / "loop/state"):
        with pytest.raises(StateDirectoryError):
            check_ours(path)


@needs(Capability.ROOT)
def test_a_group_of_its_owners_own_is_nobody_else(tmp_path: Path) -> None:
    """As with a umask of 002; a group of others is refused."""
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(0o770)
    check_ours(state)
    os.chown(state, 0, ORDINARY_UID)
    with pytest.raises(StateDirectoryError, match="others can write"):
        check_ours(state)


@needs(Capability.ROOT)
@pytest.mark.parametrize("what", ["state", "above", "link"])
def test_what_belongs_to_another_user_is_refused(tmp_path: Path, what: str) -> None:
    """The directory, one above it, or a link on the way: even root obeys none of them."""
    (tmp_path / "above/state").mkdir(parents=True)
    (tmp_path / "link").symlink_to("above")
    named = {"state": "above/state", "above": "above", "link": "link"}[what]
    os.chown(tmp_path / named, ORDINARY_UID, ORDINARY_UID, follow_symlinks=False)
    path = tmp_path / ("link/state" if what == "link" else "above/state")
    for create in (False, True):
        with pytest.raises(StateDirectoryError, match=f"uid {ORDINARY_UID}") as caught:
            Home.open({"AGENTCTL_HOME": str(path)}, create=create)
        assert "AGENTCTL_HOME" in caught.value.hint
    assert list((tmp_path / "above/state").iterdir()) == []


@needs(Capability.ROOT)
@pytest.mark.parametrize("variable", ["HOME", "XDG_STATE_HOME"])
def test_root_in_the_home_of_a_user_has_its_own_state(tmp_path: Path, variable: str) -> None:
    """`sudo -E` keeps the variable, and what root made there would be in the user's way."""
    os.chown(tmp_path, ORDINARY_UID, ORDINARY_UID)
    environ = {variable: str(tmp_path)}
    assert state_root(environ) == state_root({})
    os.chown(tmp_path, 0, 0)
    assert str(state_root(environ)).startswith(str(tmp_path))


def test_whatever_is_made_on_the_way_is_private(tmp_path: Path) -> None:
    """As the XDG specification wants it, whatever the umask."""
    before = os.umask(0)
    try:
        Home.open({"HOME": str(tmp_path)}, create=True)
    finally:
        os.umask(before)
    for name in (".local", ".local/state", ".local/state/agentctl/runs"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o700
