"""What a run is told to be protected by is what the kernel says, and a gap refuses the run."""

import os
from collections.abc import Iterator

import pytest

from agentctl_child.keepers import confinement, layers, steps
from agentctl_child.keepers.refusal import CannotStartError
from agentctl_protocol.vocabulary import Containment, Network, Sandbox
from agentctl_testkit.capabilities import Capability, needs
from agentctl_testkit.view import CALLERS, FALLBACK, Caller, without_namespaces

ALWAYS = {"scheduled below its keepers"}
ALWAYS |= {"landlock domain", "seccomp surface filter", "no new privileges", "no core dumps"}
CONTAINED = {"pid namespace", "mount namespace", "read-only /proc"}
STRICT = ALWAYS | CONTAINED | {"ipc namespace", "uts namespace", "cgroup namespace"}
STRICT |= {"private read-only root", "no capabilities", "process limit"}


@pytest.fixture(scope="module", params=CALLERS)
def caller(request: pytest.FixtureRequest) -> Iterator[Caller]:
    with Caller.open(request.param) as opened:
        yield opened


@pytest.fixture(scope="module", params=CALLERS)
def contained(request: pytest.FixtureRequest) -> Iterator[Caller]:
    """Somebody in a place where no namespace and no mount is to be had."""
    with without_namespaces(request.param) as opened:
        yield opened


def own(caller: Caller) -> set[str]:
    return {"own uid"} if caller.uid == 0 else {"user namespace"}


def but_landlocks_words(found: tuple[str, ...]) -> set[str]:
    return {layer for layer in found if not layer.startswith("landlock ")} | (
        {"landlock domain"} & set(found)
    )


def test_layers_at_strict(caller: Caller) -> None:
    """Every one of them, with and without a network of its own."""
    without = caller.launch("/bin/true").running().layers
    assert but_landlocks_words(without) == STRICT | own(caller) | {"network namespace"}
    assert [word for word in without if word.startswith("landlock abi ")]
    hosts = caller.launch("/bin/true", network=Network.HOST).running().layers
    assert but_landlocks_words(hosts) == STRICT | own(caller)


def test_layers_at_standard(caller: Caller) -> None:
    """Landlock and the filter, in the containment that there is."""
    found = caller.launch("/bin/true", sandbox=Sandbox.STANDARD).running().layers
    expected = ALWAYS | CONTAINED | own(caller) | {"process limit"}
    expected.add("reduced capabilities" if caller.uid == 0 else "no capabilities")
    assert but_landlocks_words(found) == expected


@needs(Capability.LANDLOCK_SCOPE)
def test_layers_at_standard_without_namespaces(contained: Caller) -> None:
    """Where unshare and mount fail, the sealed fallback under Landlock and two filters."""
    assert contained.spawner.ready.pid_namespace
    run = contained.launch("/bin/true", sandbox=Sandbox.STANDARD, **FALLBACK)
    found = run.running().layers
    assert run.exited().code == 0
    expected = ALWAYS | {"subreaper", "seccomp keeper filter", "process limit"}
    expected |= {"own uid", "reduced capabilities"} if contained.uid == 0 else {"no capabilities"}
    assert but_landlocks_words(found) == expected


def test_strict_without_namespaces_is_refused(contained: Caller) -> None:
    """In words, with the level that would do; in either containment."""
    for containment in Containment:
        refused = contained.launch("/bin/true", containment=containment).refused()
        assert refused.fault == "sandbox"
        assert "namespaces" in refused.detail
        assert "--sandbox standard" in refused.hint


@pytest.mark.parametrize("fallback", [False, True])
def test_standard_reaches_its_binds_only(
    request: pytest.FixtureRequest, caller: Caller, fallback: bool
) -> None:
    """Files outside of them can neither be read nor written, those inside can."""
    outside = caller.directory.parent / f"{caller.directory.name}-outside"
    outside.write_text("s3cr3t")
    os.chown(outside, caller.uid, caller.uid)
    name = f"made{fallback}"
    try:
        said = caller.shell(
            f"cat {outside}; echo x >> {outside}; cat /etc/passwd | wc -l; echo y > {name};"
            f"cat {name}; ls /var; cat /proc/self/status | wc -l; echo z > /dev/null; touch /usr/x;"
            "id -u",
            sandbox=Sandbox.STANDARD,
            **(FALLBACK if fallback else {}),
        )
        assert outside.read_text() == "s3cr3t"
    finally:
        outside.unlink()
    assert "s3cr3t" not in said
    assert said.count("ermission denied") == 4, said
    assert str(caller.run_uid) in said.split()
    assert "y" in said.split()


def test_standard_without_a_network_has_no_socket_but_pairs(caller: Caller) -> None:
    """Neither by TCP nor by the socket files of the host."""
    program = (
        "import socket, asyncio\n"
        "socket.socketpair()\n"
        "asyncio.run(asyncio.sleep(0))\n"
        "for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX):\n"
        "    try: socket.socket(family); print('made')\n"
        "    except OSError as error: print(error.errno)\n"
    )
    said = caller.output("/usr/bin/python3", "-c", program, sandbox=Sandbox.STANDARD)
    assert said.split() == ["1", "1", "1"]


@pytest.mark.parametrize("missing", sorted(layers.promised(Sandbox.STRICT, frozenset())))
def test_a_layer_that_the_kernel_does_not_confirm_refuses_the_run(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """Whatever was attempted: what is not read back is not there."""
    promised = layers.promised(Sandbox.STRICT, frozenset())
    monkeypatch.setattr(steps, "carry_out", lambda *_: None)
    monkeypatch.setattr(
        layers, "read_back", lambda *_: tuple(layer for layer in promised if layer != missing)
    )
    plan = confinement.Confinement(
        Containment.PID_NAMESPACE, Sandbox.STRICT, outside=layers.observe()
    )
    with pytest.raises(CannotStartError, match=missing) as refused:
        plan.apply()
    assert refused.value.fault == "sandbox"
    assert "--sandbox standard" in refused.value.hint


def test_nothing_is_claimed_outside() -> None:
    """A process that nothing was done to has none of the layers of a sandbox."""
    found = layers.read_back(layers.observe(), layers.Tried())
    assert set(found) <= {"agent can kill its keepers", "no new privileges", "no capabilities"}
