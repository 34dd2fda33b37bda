"""What runs that take all they can get do to a bystander under the same supervisor, in a table.

``python tests/benchmarks/bench_neighbours.py [ATTACK...]``; ATTACK is the beginning of a name, as
``--list`` prints them.  Each attack is a program in ``tests/agents/neighbours``; a new one is a
new file there (`agentctl_testkit.neighbours` says what it may contain).  Run it as root and as an
ordinary user: they share different things with their runs.

Columns: lateness of the supervisor's loop in ms (median, 99th percentile, most; most while the
attackers are stopped); a bystander's stop over its own in ms; ``agentctl stop`` of another from a
fresh shell in s (and its own); until a new run has ended, one in a workspace of its own and one in
an attacker's, in s; until all attackers have ended in s; memory of the supervisor before and at
most in MiB, and its CPU.  ``*``: not what was promised.
"""

import argparse
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from agentctl_testkit.neighbours import Seen, beside, neighbours, percentile

LATE_S = 0.02
STOP_S = 0.05
STOP_BESIDE_CPU_S = 2.0
COLUMNS = "{:<26} {:>22} {:>9} {:>8} {:>13} {:>13} {:>7} {:>11} {:>6}"
MIB = 1 << 20


def cells(seen: Seen) -> list[str]:
    """The row of what was seen."""
    cpu = seen.neighbour.kind == "cpu"
    late = [percentile(seen.late_s, part) for part in (0.5, 0.99, 1)]
    over_s = seen.stop_s - seen.own_stop_s
    return [
        str(seen.neighbour),
        "/".join(f"{value * 1000:.0f}" for value in late) + mark(late[1], LATE_S, only=not cpu),
        f"{percentile(seen.late_at_end_s, 1) * 1000:.0f}",
        f"{over_s * 1000:+.0f}" + mark(over_s, STOP_BESIDE_CPU_S if cpu else STOP_S),
        f"{seen.shell_s:.1f} ({seen.own_shell_s:.1f})",
        f"{seen.new_s:.1f} {seen.next_s:.1f}",
        f"{seen.end_s:.1f}",
        f"{seen.rss_before // MIB} > {seen.rss_peak // MIB}",
        f"{seen.cpu * 100:.0f}%",
    ]


def mark(value: float, most: float, *, only: bool = True) -> str:
    """A star beside what is more than it may be, or never came."""
    return "*" if only and (math.isnan(value) or value > most) else ""


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help="default: all")
    parser.add_argument("--attackers", type=int, default=6, help="of each kind (default: 6)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of attack (default: 3)")
    parser.add_argument("--sandbox", default="strict", help="level of all runs (default: strict)")
    parser.add_argument("--list", action="store_true", help="say what each attack does, and end")
    options = parser.parse_args()
    chosen = [
        neighbour
        for neighbour in neighbours()
        if neighbour.is_for_us
        if not options.attacks or str(neighbour).startswith(tuple(options.attacks))
    ]
    if options.list:
        for neighbour in chosen:
            print(f"{neighbour!s:<26} {' '.join(neighbour.does.split())}")
        return
    print(
        COLUMNS.format(
            *("attack", "loop ms p50/p99/most", "at end ms", "stop +ms", "shell s (own)"),
            *("new, next s", "end s", "memory MiB", "CPU"),
        )
    )
    for neighbour in chosen:
        seen = beside(
            neighbour,
            attackers=options.attackers,
            seconds=options.seconds,
            level=options.sandbox,
        )
        print(COLUMNS.format(*cells(seen)), f" {seen.said}", flush=True)
        for trouble in seen.trouble:
            print(f"    * {trouble}", flush=True)


if __name__ == "__main__":
    main()
