"""An agent that swallows every exception, and asks for call after call whatever it is told."""

from agentctl_child import run


def main() -> None:
    """Never ends by itself; between two asks it streams."""
    number = 0
    while True:
        try:
            number += 1
            with run.tool_call("again", number):
                run.emit_text("x")
        except BaseException:
            pass
