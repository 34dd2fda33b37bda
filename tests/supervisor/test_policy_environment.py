"""What a run knows of our environment."""

import pytest

from agentctl_protocol.spec import RunSpec, SpecError
from agentctl_protocol.vocabulary import Network, Sandbox
from agentctl_supervisor.policy import protected
from agentctl_supervisor.policy.accounts import group, passwd
from agentctl_supervisor.policy.environment import chosen, inherited
from agentctl_supervisor.run.launch import settled

_OURS = {"PATH": "/bin", "LC_TIME": "C", "TERM": "xterm", "TOKEN": "secret", "SSH_AUTH_SOCK": "/s"}


@pytest.mark.parametrize("level", [Sandbox.STRICT, Sandbox.STANDARD])
def test_secrets_stay_outside(level: Sandbox) -> None:
    """Only what every program needs and no secret is in goes in by itself."""
    assert inherited(level, _OURS) == {"PATH": "/bin", "LC_TIME": "C", "TERM": "xterm"}


@pytest.mark.parametrize("level", [Sandbox.BASIC, Sandbox.NONE])
def test_at_the_weaker_levels_all_goes_in(level: Sandbox) -> None:
    """They hide nothing, and say so."""
    assert inherited(level, _OURS) == _OURS


def test_variables_are_chosen_by_name_or_with_their_value() -> None:
    """The last one of a name counts; a value may hold anything but NUL."""
    assert chosen(["TOKEN", "A=b=c", "A="], _OURS) == {"TOKEN": "secret", "A": ""}


@pytest.mark.parametrize("word", ["", "=x", "MISSING", "A\0=x", "A=\0", "A\n=x"])
def test_what_is_no_variable_is_refused(word: str) -> None:
    """Passing on what is not there would be noticed much later."""
    with pytest.raises(SpecError) as caught:
        chosen([word], _OURS)
    assert caught.value.hint


def test_a_level_that_nobody_names_is_the_environments() -> None:
    """And says where it is from."""
    spec = settled(RunSpec(argv=["x"]), {"AGENTCTL_SANDBOX": "standard"})
    assert (spec.sandbox, spec.net) == (Sandbox.STANDARD, Network.NONE)
    assert spec.origins == {"sandbox": "env AGENTCTL_SANDBOX", "net": "default"}
    spec = settled(RunSpec(argv=["x"], sandbox=Sandbox.BASIC), {"AGENTCTL_SANDBOX": "standard"})
    assert (spec.sandbox, spec.net, spec.origins) == (
        Sandbox.BASIC,
        Network.HOST,
        {"net": "default"},
    )


def test_a_program_may_name_a_level_by_a_string() -> None:
    """It is not silently taken for something weaker."""
    spec = settled(RunSpec(argv=["x"], sandbox="strict", net="host"), {})  # type: ignore[arg-type]
    assert spec.sandbox is Sandbox.STRICT
    assert spec.net is Network.HOST
    with pytest.raises(SpecError, match="strct: no such sandbox level") as caught:
        settled(RunSpec(argv=["x"], sandbox="strct"), {})  # type: ignore[arg-type]
    assert caught.value.hint.startswith("did you mean strict?")
    with pytest.raises(SpecError, match="AGENTCTL_SANDBOX=bsic: no such sandbox level"):
        settled(RunSpec(argv=["x"]), {"AGENTCTL_SANDBOX": "bsic"})


@pytest.mark.parametrize(
    "spec",
    [
        RunSpec(argv=["x"], sandbox=Sandbox.BASIC, net=Network.NONE),
        RunSpec(argv=["x"], sandbox=Sandbox.NONE, workspace="/tmp/x"),
        RunSpec(argv=["x"], sandbox=Sandbox.BASIC, ro=("/srv",)),
        RunSpec(argv=["x"], sandbox=Sandbox.BASIC, rw=("/srv",)),
        RunSpec(argv=["x"], sandbox=Sandbox.BASIC, unprotect=(".git/hooks",)),
        RunSpec(argv=["x"], sandbox=Sandbox.STRICT, ro="/srv"),  # type: ignore[arg-type]
        RunSpec(argv=["x"], sandbox=Sandbox.STRICT, rw=("",)),
        RunSpec(argv=["x"], sandbox=Sandbox.STRICT, workspace="a\0b"),
    ],
)
def test_a_wall_that_a_level_does_not_have_cannot_be_asked_for(spec: RunSpec) -> None:
    """Never silently weaker."""
    with pytest.raises(SpecError):
        spec.checked()


def test_a_run_knows_nobody_but_itself() -> None:
    """Nobody else's name, and one line for each number, whatever stands in HOME."""
    lines = passwd(1000, 1000, "ada", "/home/ada\nevil:x:0:0::/:/bin/sh", "/bin/bash").splitlines()
    assert [line.split(b":")[0] for line in lines] == [b"root", b"nobody", b"ada"]
    assert all(line.count(b":") == 6 for line in lines)
    lines = passwd(65534, 65534, "nobody", "/home/n", "/bin/sh").splitlines()
    assert [line.split(b":")[5] for line in lines] == [b"/root", b"/home/n"]
    assert group(1000, "ada").splitlines()[-1] == b"ada:x:1000:"


def test_a_name_is_unprotected_with_all_beneath_it() -> None:
    """And only what is protected can be."""
    assert ".git/hooks" in protected.names()
    assert ".git/hooks" not in protected.names((".git/hooks",))
    assert ".git/config" in protected.names((".git/hooks",))
    assert not [name for name in protected.names((".git/",)) if name.startswith(".git/")]
    assert ".gitmodules" in protected.names((".git",))
    protected.check((".git", "agentctl.toml"))
    with pytest.raises(SpecError) as caught:
        protected.check((".git/hook",))
    assert caught.value.hint == "did you mean .git/hooks?"
