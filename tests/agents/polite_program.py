"""A polite program (argv): uses the SDK when agentctl runs it, and works without."""

import time

from agentctl_child import RunCancelled, run


def main() -> None:
    print(f"supervised: {run.supervised}, input: {run.input}", flush=True)
    run.emit_text("hello")
    with run.tool_call("wait", {"seconds": 0.01}):
        time.sleep(0.01)
    if run.input == "sleep":
        try:
            time.sleep(60)
        except RunCancelled:
            run.log("stopped")
            raise


if __name__ == "__main__":
    main()
