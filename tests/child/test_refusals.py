"""What is said of a step that the kernel refuses: what is behind it, and not what is not."""

import errno
import os

import pytest

from agentctl_child.keepers import probe, refusal
from agentctl_protocol.vocabulary import Sandbox


def _said(name: str, level: Sandbox, number: int) -> str:
    return str(refusal.refused_step(name, level, OSError(number, os.strerror(number), "a call")))


@pytest.mark.parametrize("level", list(Sandbox))
@pytest.mark.parametrize("step", ["limits", "uid", "capabilities", "Landlock", "seccomp"])
def test_what_has_nothing_to_do_with_namespaces_is_not_blamed_on_them(
    step: str, level: Sandbox
) -> None:
    """A person would look for a setting that changes nothing."""
    for number in (errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOSPC, errno.ENOSYS):
        said = _said(step, level, number)
        assert step in said
        assert "namespace" not in said
        assert "AppArmor" not in said


def test_rights_in_a_user_namespace_are_a_users_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ubuntu gives the namespace and takes its rights; root needs none."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "AppArmor" in _said("host name", Sandbox.STRICT, errno.EPERM)
    assert "namespaces are switched off" in _said("namespaces", Sandbox.STRICT, errno.EPERM)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "AppArmor" not in _said("host name", Sandbox.STRICT, errno.EPERM)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("odd")])
def test_a_probe_that_fails_in_no_known_way_has_not_succeeded(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A containment that is said to work is what runs are then started with."""

    class Failing:
        def enter(self) -> None:
            raise error

    monkeypatch.setattr(probe, "enclosure_for", lambda *_: Failing())
    assert probe.find_out().pid_namespace
