"""What confinement costs while a run runs: ``python tests/benchmarks/bench_confinement.py``.

Each kind of work is done by a process that has confined itself first, in turn with one that has
not, many times over; what counts is the processor time of it and its children, and the figure
is the median of the ratios of neighbours.  Nothing here asserts.  ``--quick`` takes a tenth.
"""

import argparse
import os
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from agentctl_child.sandbox import landlock, prctl, seccomp
from agentctl_protocol.vocabulary import Network

SOURCE: Final = (
    "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\nint f(void){return 1;}\n"
)
DEEP: Final = os.path.realpath(os.__file__)


def domain() -> None:
    """That of a run at strict: its root for reading, a few directories for writing."""
    landlock.restrict(
        [b"/"],
        [b"/dev/shm", os.fsencode(tempfile.gettempdir())],
        network=Network.HOST,
        devices=[b"/dev/null", b"/dev/urandom"],
    )


def writing_domain() -> None:
    """The same, with reading left to a private root's mounts."""
    landlock.restrict(
        None,
        [b"/dev/shm", os.fsencode(tempfile.gettempdir())],
        network=Network.HOST,
        devices=[b"/dev/null", b"/dev/urandom"],
    )


def surface() -> None:
    """The filter at strict."""
    seccomp.install(
        seccomp.surface_filter(network=Network.HOST, unix_sockets=True, shares_host=False)
    )


def whole_surface() -> None:
    """All rules that there are: standard without a network, on an old kernel."""
    seccomp.install(
        seccomp.surface_filter(
            network=Network.NONE, unix_sockets=False, shares_host=True, truncation=False
        )
    )


def any_filter() -> None:
    """One instruction, which allows everything: less than this no filter costs."""
    seccomp.install(struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF_0000))


def keeper() -> None:
    """The filter of the fallback."""
    seccomp.install(seccomp.keeper_filter([os.getppid()], [os.getpgid(0)]))


CONFINEMENTS: Final[dict[str, tuple[Callable[[], None], ...]]] = {
    "nothing again": (),
    "a filter at all": (any_filter,),
    "surface filter": (surface,),
    "Landlock": (domain,),
    "Landlock, surface": (domain, surface),
    "for writing": (writing_domain,),
    "for writing, surface": (writing_domain, surface),
    "all rules": (domain, whole_surface, keeper),
}


def getppid() -> None:
    """A call without a rule, and next to nothing else."""
    for _ in range(400_000):
        os.getppid()


def ioctl() -> None:
    """A call with a rule about its arguments."""
    for _ in range(200_000):
        os.isatty(0)


def open_files() -> None:
    """Open and close a file some directories deep."""
    for _ in range(60_000):
        os.close(os.open(DEEP, os.O_RDONLY | os.O_CLOEXEC))


def read_files() -> None:
    """The same as programs do it, with the reading."""
    for _ in range(6_000):
        with open(DEEP, "rb") as file:
            file.read()


def fork() -> None:
    """Fork and reap."""
    for _ in range(400):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)


def execute() -> None:
    """Start /bin/true and reap it."""
    for _ in range(150):
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)


def start_python() -> None:
    """Start an interpreter with its usual imports."""
    for _ in range(8):
        subprocess.run([sys.executable, "-I", "-c", "import json"], check=True)


def compile_c() -> None:
    """Compile a small file."""
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory, "a.c")
        source.write_text(SOURCE)
        for _ in range(5):
            subprocess.run(["gcc", "-O1", "-c", source, "-o", f"{directory}/a.o"], check=True)


WORK: Final = {
    work.__name__: work
    for work in (getppid, ioctl, open_files, read_files, fork, execute, start_python, compile_c)
}


def seconds(work: str, confinement: str) -> float:
    """Processor time of one process that confines itself and works."""
    done = subprocess.run(
        [sys.executable, __file__, "--work", work, "--under", confinement],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )
    return float(done.stdout)


def work_and_tell(work: str, confinement: str) -> None:
    prctl.forbid_new_privileges()
    for act in CONFINEMENTS.get(confinement, ()):
        act()
    WORK[work]()  # warm
    before = processor_time()
    WORK[work]()
    print(processor_time() - before)


def processor_time() -> float:
    """Of this process and those that it has reaped, in seconds."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--work", choices=WORK)
    parser.add_argument("--under")
    chosen = parser.parse_args()
    if chosen.under is not None:
        work_and_tell(chosen.work, chosen.under)
        return
    rounds = 3 if chosen.quick else 30
    print(f"{'':14}" + "".join(f"{name:>22}" for name in CONFINEMENTS))
    for work in [chosen.work] if chosen.work else WORK:
        if work == "compile_c" and not shutil.which("gcc"):
            continue
        ratios: dict[str, list[float]] = {name: [] for name in CONFINEMENTS}
        for _ in range(rounds):
            for name, found in ratios.items():
                free = seconds(work, "")
                found.append(seconds(work, name) / free)
        cells = [
            f"{statistics.median(found):.3f} ±{statistics.stdev(found) / rounds**0.5:.3f}"
            for found in ratios.values()
        ]
        print(f"{work:14}" + "".join(f"{cell:>22}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
