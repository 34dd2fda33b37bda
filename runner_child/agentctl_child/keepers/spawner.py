"""The spawner: the clean, single-threaded process that runs are forked from.

It is started isolated (docs/adr/0016), with ``--request-fd N --supervisor-pidfd N --supervisor-pid
PID``.

The supervisor has threads and must not fork itself. The spawner imports once what every run needs,
so that a run begins with the fork of a warm process. It never reads a Launch: a bad run must not
be able to harm the next one.
"""

import argparse
import contextlib
import gc
import os
import select
import signal
import socket
import sys
import time
from typing import Final

# Imported for the runs: a fork shares the loaded module.
import agentctl_child.agent  # noqa: F401
from agentctl_child.keepers import confinement, layers, process_title
from agentctl_child.keepers.death_chain import DeathChain
from agentctl_child.keepers.failpoints import reach
from agentctl_child.keepers.fork_run import Keepers
from agentctl_child.keepers.launch_request import BadLaunchError, Descriptors, receive
from agentctl_child.keepers.probe import find_out
from agentctl_child.keepers.refusal import (
    CannotStartError,
    refused_by_system,
    refused_without_tasks,
)
from agentctl_child.keepers.sweep import children_of, sweep
from agentctl_child.keepers.warden import run_warden
from agentctl_child.sandbox import oom_score, pidfd, prctl, rlimits, signals, task_table
from agentctl_protocol.spawning import LaunchPacket, SpawnerReady, pack
from agentctl_protocol.vocabulary import Containment

_ALL_KINDS: Final = 0x4000_0000  # __WALL
#: The idle import of asyncio must not delay the second of two successive runs.
_IDLE_MS: Final = 5
#: The time that wardens may take to empty their trees before the spawner does it itself.
_FAREWELL_S: Final = 1.0


class Spawner:
    """Forks wardens on request; dies with its supervisor, and its wardens die with it."""

    def __init__(
        self,
        requests: socket.socket,
        supervisor: int,
        supervisor_pidfd: int,
        soft_descriptors: int | None = None,
    ) -> None:
        self.requests = requests
        self.keepers = Keepers(
            supervisor=supervisor,
            supervisor_pidfd=supervisor_pidfd,
            spawner=os.getpid(),
            spawner_pidfd=pidfd.open_own(),
            outside=layers.observe(),
            soft_descriptors=soft_descriptors,
        )
        self.children = signals.open_signalfd([signal.SIGCHLD])
        # Maps each warden's pid to the number of tasks that its run may have. These wardens are
        # not yet reaped, so the kernel cannot reuse their pids.
        self.wardens: dict[int, int] = {}
        self.sweeping = False
        self.idle_work = True

    def __repr__(self) -> str:
        return f"<Spawner wardens={len(self.wardens)} sweeping={self.sweeping}>"

    def serve(self) -> None:
        """Fork runs until the supervisor is gone or closes its end."""
        requests, supervisor = self.requests.fileno(), self.keepers.supervisor_pidfd
        poll = select.poll()
        for descriptor in (requests, supervisor, self.children):
            poll.register(descriptor, select.POLLIN)
        while True:
            ready = {d for d, _ in poll.poll(_IDLE_MS if self.idle_work else None)}
            if supervisor in ready:
                return
            if self.children in ready:
                signals.read_signalfd(self.children)
                self._reap()
                if self.sweeping:
                    self._sweep_orphans()
            if requests in ready and not self._take_request():
                return
            if not ready:
                self._use_idle_time()

    # --- forking ------------------------------------------------------------

    def _take_request(self) -> bool:
        try:
            request = receive(self.requests)
        except BadLaunchError as error:
            _complain(f"a request was not understood: {error}")
            return True
        except ConnectionError:
            return False
        if request is None:
            return False
        packet, given = request
        if packet.containment is Containment.SUBREAPER:
            self._become_sweeper()
        try:
            self._fork_warden(packet, given)
        except CannotStartError as error:
            with socket.socket(fileno=os.dup(given.status)) as status, contextlib.suppress(OSError):
                status.send(pack(error.packet()), socket.MSG_DONTWAIT)
        given.close()
        return True

    def _fork_warden(self, packet: LaunchPacket, given: Descriptors) -> None:
        threads = len(os.listdir("/proc/self/task"))
        if threads > 1:
            # Only the forking thread lives on in the child, while locks of other threads stay
            # held.
            raise CannotStartError(
                "system",
                f"the spawner runs {threads} threads, so it must not fork",
                hint="A preloaded module has started them.",
            )
        share = self._process_share()
        try:
            pid = os.fork()
        except OSError as error:
            raise refused_by_system("the run cannot be forked", error) from None
        if pid == 0:
            self.requests.close()
            os.close(self.children)
            chain = DeathChain([self.keepers.spawner_pidfd, self.keepers.supervisor_pidfd])
            run_warden(given, packet.run, self.keepers, chain, share)
        self.wardens[pid] = share
        reach("spawner:forked")

    def _process_share(self) -> int:
        """Return how many tasks one more run may have.

        Raises CannotStartError if hardly any are left.
        """
        # For root, the tasks that its other runs may still take are counted here. An ordinary
        # user's runs share the user's limit, which the kernel enforces (`user_counters`).
        promised = sum(self.wardens.values()) if os.geteuid() == 0 else None
        bound = task_table.tightest(rlimits.PROCESSES_IN_A_NAMESPACE)
        share = rlimits.process_share(bound, promised)
        if bound is not None and share < rlimits.FEWEST_PROCESSES:
            raise refused_without_tasks(bound)
        return share

    def _use_idle_time(self) -> None:
        # Half of all agents need it, and the import takes 50 ms.
        import agentctl_child.sdk.asyncio_mode  # noqa: F401

        confinement.prepare()
        gc.freeze()
        self.idle_work = False

    # --- the dead, and what they leave ------------------------------------

    def _become_sweeper(self) -> None:
        """Become a subreaper at the first run without a pid namespace.

        From then on, the tree of a dead warden comes to us.
        """
        if not self.sweeping:
            prctl.become_subreaper()
            self.sweeping = True

    def _reap(self) -> None:
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG | _ALL_KINDS)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.wardens.pop(pid, None)

    def _sweep_orphans(self) -> None:
        own = os.getpid()
        if not self.wardens.keys() >= set(children_of(own)):
            sweep(own, lambda: self.wardens, reap=self._reap)

    def take_leave(self) -> None:
        """Let the wardens end their runs and write down how; then end what is left."""
        for pid in self.wardens:
            os.kill(pid, signal.SIGUSR2)
            # It may have been stopped, and we do not end before it does.
            os.kill(pid, signal.SIGCONT)
        end = time.monotonic() + _FAREWELL_S
        while self.wardens and (left := end - time.monotonic()) > 0:
            signal.sigtimedwait([signal.SIGCHLD], left)
            self._reap()
        for pid in self.wardens:
            os.kill(pid, signal.SIGKILL)  # and init with it
        if self.sweeping:
            sweep(os.getpid(), reap=self._reap)


def _complain(text: str) -> None:
    sys.stderr.write(f"agentctl spawner: {text}\n")
    sys.stderr.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m agentctl_child.keepers.spawner")
    parser.add_argument("--request-fd", type=int, required=True)
    parser.add_argument("--supervisor-pidfd", type=int, required=True)
    parser.add_argument("--supervisor-pid", type=int, required=True)
    parser.add_argument("--soft-descriptors", type=int, help="the soft limit of runs on them")
    parser.add_argument("--room", default="", help="any text: room for the titles in ps")
    return parser.parse_args()


def main() -> int:
    """Serve one supervisor."""
    arguments = _arguments()
    signals.refuse_all()
    DeathChain([arguments.supervisor_pidfd]).arm(signal.SIGCONT)
    reach("spawner:started")
    # Before our own files in /proc belong to root.
    oom_score.stand_last()
    rlimits.raise_own_descriptors()
    prctl.set_dumpable(False)
    process_title.prepare()
    for descriptor in (arguments.request_fd, arguments.supervisor_pidfd):
        os.set_inheritable(descriptor, False)
    # No garbage that needs the collector is made here. A collection would write to, and so copy,
    # every page that the runs share with this process.
    gc.disable()
    gc.freeze()
    with socket.socket(fileno=arguments.request_fd) as requests:
        spawner = Spawner(
            requests,
            arguments.supervisor_pid,
            arguments.supervisor_pidfd,
            arguments.soft_descriptors,
        )
        findings = find_out()
        requests.send(
            pack(
                SpawnerReady(
                    pid=os.getpid(),
                    pid_namespace=findings.pid_namespace,
                    sealed=findings.sealed,
                )
            )
        )
        spawner.serve()
    spawner.take_leave()
    return 0


if __name__ == "__main__":
    sys.exit(main())
