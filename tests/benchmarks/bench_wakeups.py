"""How late storms of wake-ups make us: ``python tests/benchmarks/bench_wakeups.py [--quick]``.

For each kind of storm and number of processes: the whole command
``agentctl kill`` in seconds, and how long after
``--time`` and its graces the run ended.  Run it as root and as an ordinary user; needs ``cc``.
The targets on 2 CPUs are 2 s and 0.5 s.  Nothing here asserts.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from agentctl_testkit import AGENTS, command_of

KINDS: Final = ("usleep", "timerfd", "itimer", "timer", "pipe", "eventfd", "futex", "signal")
NUMBERS: Final = (500, 1000, 4000)
_COMMAND: Final = (command_of(sys.executable),)
_PATIENCE_S: Final = 60.0


def _agentctl(home: Path, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        (*_COMMAND, *arguments),
        cwd=home,
        env={**os.environ, "AGENTCTL_HOME": str(home / "state")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=_PATIENCE_S,
    )


def _killed(home: Path, *storm: str) -> str:
    _agentctl(home, "run", "-q", "-d", "--name", "s", "--time", "40s", "--", "./wakeups", *storm)
    time.sleep(2)  # the storm is to be at its height, and says nothing of that
    began = time.monotonic()
    done = _agentctl(home, "kill", "-o", "json", "s")
    took_s = time.monotonic() - began
    (one,) = json.loads(done.stdout)["runs"]
    return f"{took_s:6.2f}{'' if one['gone'] else ' NOT GONE'}"


def _overshoot(home: Path, *storm: str) -> str:
    limits = ("--time", "3s", "--grace", "200ms", "--term-grace", "300ms")
    done = _agentctl(home, "run", "-o", "json", *limits, "--", "./wakeups", *storm)
    return f"{json.loads(done.stdout)['duration_s'] - 3.5:6.2f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="How late storms of wake-ups make us.")
    parser.add_argument("--quick", action="store_true", help="three kinds of 500 processes")
    quick = parser.parse_args().quick
    kinds, numbers = (("usleep", "timerfd", "pipe"), (500,)) if quick else (KINDS, NUMBERS)
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        home.chmod(0o755)
        subprocess.run(["cc", "-O1", "-o", home / "wakeups", AGENTS / "wakeups.c"], check=True)
        print(f"{'storm':24}{'kill s':>16}{'over --time s':>16}", flush=True)
        for kind in kinds:
            for number in numbers:
                for sessions in ((), ("setsid",)):
                    storm = (kind, str(number), *sessions)
                    cells = []
                    for measure in (_killed, _overshoot):
                        cell = "none within 60"
                        with contextlib.suppress(subprocess.TimeoutExpired):
                            cell = measure(home, *storm)
                        cells.append(cell)
                    print(f"{' '.join(storm):24}{cells[0]:>16}{cells[1]:>16}", flush=True)


if __name__ == "__main__":
    main()
