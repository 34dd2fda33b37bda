"""The gate: who may call what, and that nothing passes after a stop."""

import msgspec
import pytest

from agentctl_protocol.messages import Ask
from agentctl_supervisor import gate as gates
from agentctl_supervisor.gate import Gate


def ask(call: str, name: str = "shell") -> Ask:
    return Ask(call=call, kind="tool", name=name, args=msgspec.Raw(b"\x81\xa1a\x01"))


def test_an_open_gate_grants_and_the_record_tells_the_whole_call() -> None:
    """The verdict is the start of the call: it holds what was asked for."""
    verdict = Gate().judge(ask("c1"))
    assert (verdict.call, verdict.name, verdict.verdict) == ("c1", "shell", "granted")
    assert bytes(verdict.args) == b"\x81\xa1a\x01"


def test_a_closed_gate_refuses_for_good_and_keeps_its_first_reason() -> None:
    """Nothing opens the gate again."""
    gate = Gate()
    gate.close("the run is being stopped")
    gate.close("something else")
    assert {gate.judge(ask(f"c{n}")).why for n in range(3)} == {"the run is being stopped"}
    assert gate.closed


@pytest.mark.parametrize("finished", [False, True])
def test_a_call_id_is_granted_once(finished: bool) -> None:
    """A reused id would make two calls look like one in the report."""
    gate = Gate()
    assert gate.judge(ask("c1")).verdict == "granted"
    if finished:
        assert gate.finish("c1")
    assert gate.judge(ask("c1")).why == "this call id was used before"


def test_finishing_a_call_that_is_not_running_is_noticed() -> None:
    """Neither a call that was never granted nor one that is over can be finished."""
    gate = Gate()
    assert not gate.finish("c1")
    gate.judge(ask("c1"))
    assert gate.finish("c1")
    assert not gate.finish("c1")


def test_the_number_of_remembered_calls_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent cannot fill the supervisor's memory with call ids."""
    monkeypatch.setattr(gates, "MAX_CALLS", 2)
    gate = Gate()
    verdicts = [gate.judge(ask(f"c{n}")).verdict for n in range(3)]
    assert verdicts == ["granted", "granted", "refused"]
