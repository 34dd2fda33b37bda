"""Group D: the network.  With it off, nothing of it is reached, and nobody reaches the run.

D8 to D11 of the catalogue are about a gateway that lets some names pass; there is none yet.
"""

import contextlib
import os
import secrets
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from agentctl_testkit.attack_plant import Plant
from agentctl_testkit.attacks import AttackRange, Probe, attack_files, limits_of_standard, params

_DOCUMENTATION: Final = ("192.0.2.1", 9)


def _own_address() -> str:
    """An address of this machine that is not loopback; empty if it has none."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.connect(_DOCUMENTATION)  # asks for the way there, and sends nothing
        return str(one.getsockname()[0])
    return ""


def _listener_on_the_network(plant: Plant) -> Mapping[str, Any]:
    address = _own_address()
    if not address:
        return {"address": "", "address_port": 0}
    listener = plant.undo.enter_context(socket.socket())
    listener.bind((address, 0))
    listener.listen(8)
    listener.setblocking(False)
    plant.sockets["network"] = listener
    return {"address": address, "address_port": listener.getsockname()[1]}


def _abstract_datagrams(plant: Plant) -> Mapping[str, Any]:
    name = f"agentctl-attack-{secrets.token_hex(8)}"
    receiver = plant.undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    receiver.bind(f"\0{name}")
    receiver.setblocking(False)
    plant.sockets["abstract datagram"] = receiver
    return {"abstract_dgram": name}


def _services(plant: Plant) -> Mapping[str, Any]:
    """Services of the host's with the shapes of well-known ones: who sees them may call."""
    paths = {
        "docker": plant.outside / "docker.sock",
        "bus": plant.outside / "bus",
        "ssh_agent": plant.outside / "agent.17",
        "notify": plant.outside / "notify",
    }
    for name, path in paths.items():
        kind = socket.SOCK_DGRAM if name == "notify" else socket.SOCK_STREAM
        service = plant.undo.enter_context(socket.socket(socket.AF_UNIX, kind))
        service.bind(str(path))
        path.chmod(0o666)
        service.setblocking(False)
        if kind == socket.SOCK_STREAM:
            service.listen(8)
        plant.sockets[name] = service
    return {"services": {name: str(path) for name, path in paths.items()}}


def _caller_of_ports(plant: Plant) -> Mapping[str, Any]:
    """Somebody on the host who calls every port that the attack announces."""
    gone = threading.Event()
    caller = threading.Thread(target=_call, args=(plant.workspace, gone))
    caller.start()
    plant.undo.callback(caller.join)
    plant.undo.callback(gone.set)
    return {}


def _call(workspace: Path, gone: threading.Event) -> None:
    called: set[str] = set()
    while not gone.wait(0.05):
        with contextlib.suppress(OSError):
            for name in os.listdir(workspace):
                if name.endswith(".port") and name not in called:
                    port = int((workspace / name).read_text())
                    for address in ("127.0.0.1", "::1"):
                        with contextlib.suppress(OSError):
                            socket.create_connection((address, port), timeout=1).close()
                    called.add(name)


_LISTED: Final = limits_of_standard(
    "names in /proc/net/unix; there is no socket to call them with", "listed"
)

PROBES: Final = (
    Probe("d01_tcp", plant=_listener_on_the_network, seen=True),
    Probe("d02_other_transports", plant=_listener_on_the_network, seen=True),
    Probe("d03_other_addresses", seen=True),
    Probe("d04_abstract_sockets", plant=_abstract_datagrams, seen=True, harmless=_LISTED),
    Probe("d05_path_sockets", plant=_services, seen=True),
    Probe("d06_listen", plant=_caller_of_ports),
    Probe("d07_dns", seen=True),
)


@pytest.mark.parametrize("probe", params(PROBES))
def test_attack_on_the_network(probe: Probe, attack_range: AttackRange) -> None:
    """It works outside, and does not inside; nobody on the host is called."""
    attack_range.check(probe)


def test_every_attack_on_the_network_is_tried() -> None:
    """A file in the directory that no list names would prove nothing."""
    assert attack_files("d") == {probe.name for probe in PROBES}
