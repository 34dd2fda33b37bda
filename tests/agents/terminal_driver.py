"""Says in every way there is what would drive a terminal, or what nobody sees."""

import os

from agentctl_child import run

SAID = (
    "A\u009b31mC1 \u202eoverride\u2066 \x1b]52;c;aGk=\x07 \x7f \u2028 \u200b\ufe0f\u3164 \U000e0041"
)
FILE = "made" + SAID.replace("/", "")


def main() -> dict[str, str]:
    """Succeeds with it."""
    _tell()
    return {SAID: SAID}


def broken() -> None:
    """Fails with it."""
    _tell()
    raise RuntimeError(SAID * 3)


def _tell() -> None:
    run.emit_text(SAID)
    run.emit_message(SAID, source=SAID)
    run.log(SAID)
    run.progress(1, 2, SAID)
    run.usage(model=SAID, prompt_tokens=1)
    with run.tool_call("look", {SAID: SAID}) as call:
        call.result = SAID
    run.checkpoint({SAID: SAID})
    with open(FILE, "w") as file:
        file.write(SAID)
    run.artifact(FILE)
    os.write(2, SAID.encode())
