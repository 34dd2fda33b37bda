"""Files of ours that have a second name, by which a run could change them: hard links."""

import os
from pathlib import Path

import pytest

from agentctl_protocol.spec import RunSpec, SpecError
from agentctl_protocol.vocabulary import Network, Sandbox
from agentctl_supervisor.policy import own_files
from agentctl_supervisor.policy.decision import Ground, decide


def test_a_hard_link_into_a_cache_is_found(tmp_path: Path) -> None:
    """As uv installs a package: every file is one with that in its cache."""
    package = tmp_path / "package"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "deep/module.py").write_text("")
    (package / "link").symlink_to("deep")
    assert own_files._beneath(str(package)) == ((str(package / "link"),), "")

    os.link(package / "deep/module.py", tmp_path / "cached")

    own_files._beneath.cache_clear()
    assert own_files._beneath(str(package)).hard_linked == str(package / "deep/module.py")


def test_what_others_own_or_the_system_links_is_no_matter(tmp_path: Path) -> None:
    """A run cannot write to the one; the other is whole systems (OSTree, Nix)."""
    (tmp_path / "file").write_text("")
    os.link(tmp_path / "file", tmp_path / "other")
    found = os.stat(tmp_path / "file")
    assert own_files._has_second_name(found, str(tmp_path / "file"))
    assert not own_files._has_second_name(found, "/usr/lib/python3/file")
    elsewhere = os.stat_result((*found[:4], os.geteuid() + 1, *found[5:]))
    assert not own_files._has_second_name(elsewhere, str(tmp_path / "file"))


@pytest.mark.parametrize("level", [Sandbox.STRICT, Sandbox.STANDARD])
def test_no_run_is_started_beside_such_an_installation(
    level: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the other name is cannot be found out: in the cache, or in any project's venv."""
    monkeypatch.setattr(own_files, "second_name", lambda: "/site-packages/ours.py")
    spec = RunSpec(argv=["true"], sandbox=level, net=Network.NONE)
    with pytest.raises(SpecError, match=r"/site-packages/ours\.py.* has a second name") as caught:
        decide(spec, Ground(dict(os.environ), str(tmp_path), str(tmp_path / "run")))
    assert "--link-mode copy" in caught.value.hint
