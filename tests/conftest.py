"""Rules for all tests, and the fixtures that most of them want."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from agentctl_testkit import AgentctlHome, RollCall, kill_all, new_marker, wait_until_gone
from agentctl_testkit.capabilities import Capability
from agentctl_testkit.log_check import faults, logs_below
from agentctl_testkit.turns import turn

#: What ``pytest -m "not slow"`` leaves out: folders and files, less those of `FAST`.  By rule, so
#: that a new file in a slow folder is slow; a file moves when ``--durations=0`` says so.
SLOW = (
    "packaging/",
    "system/",
    *(f"child/test_keeper_{area}.py" for area in ("death", "spawn", "stop", "sweep")),
    *(f"child/test_sandbox_{area}.py" for area in ("layers", "steps", "view")),
    *("child/test_landlock.py", "child/test_sdk_process.py", "child/test_seccomp_surface.py"),
)
FAST = (
    *(f"system/test_cli_{area}.py" for area in ("doctor", "durations", "terminal", "views")),
    *(f"system/test_terminal_{area}.py" for area in ("passing", "view")),
    *("system/test_agent_modes.py", "system/test_evidence.py"),
)


def is_slow(path: Path) -> bool:
    """Whether the inner loop does without the tests in *path*."""
    name = path.relative_to(Path(__file__).parent).as_posix()
    return name.startswith(SLOW) and name not in FAST


# The same examples in every run: a red test is somebody's change.  To look for new ones:
# pytest --hypothesis-profile=explore.  No judgement by the clock: the machine may be busy.
NO_CLOCK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", NO_CLOCK)
settings.register_profile("same", NO_CLOCK, derandomize=True)
settings.load_profile("same")


def pytest_configure() -> None:
    """Give the programs under test the signals that a terminal would give them.

    A suite that runs under nohup, or in the background of a script, was started with some
    ignored, and a program would inherit that.  A handler is not inherited.

    A test that names no sandbox level is not about the sandbox.
    """
    os.environ["AGENTCTL_SANDBOX"] = "basic"
    for number in (signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of slow files, so that the inner loop can leave them out."""
    for item in items:
        if is_slow(item.path):
            item.add_marker(pytest.mark.slow)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose needs this machine does not meet."""
    for mark in item.iter_markers("needs"):
        for capability in mark.args:
            if not Capability(capability).here:
                pytest.skip(f"this machine has no {Capability(capability)}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Let a test wait for its turn, before the time that it may take begins."""
    with turn(alone=item.get_closest_marker("alone") is not None):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
    call: pytest.CallInfo[None],
) -> Iterator[None]:
    """Turn a skip that names no missing capability into a failure."""
    report: pytest.TestReport = yield  # type: ignore[assignment]
    excused = any(
        not Capability(capability).here
        for mark in item.iter_markers("needs")
        for capability in mark.args
    )
    if report.skipped and not hasattr(report, "wasxfail") and not excused:
        report.outcome = "failed"
        report.longrepr = f"skipped, though this machine could run it: {report.longrepr}"
    return report  # type: ignore[return-value]


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Turn a file that skips itself into a failure."""
    report: pytest.CollectReport = yield  # type: ignore[assignment]
    if report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} skips itself: mark its tests with needs() instead"
    return report  # type: ignore[return-value]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a session that left a log which breaks a promise; pytest keeps the directory."""
    factory = getattr(session.config, "_tmp_path_factory", None)
    if factory is None or factory._basetemp is None:
        return
    found = {str(run): told for run in logs_below(factory._basetemp) if (told := faults(run))}
    if not found:
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    assert reporter is not None
    reporter.ensure_newline()
    reporter.section("logs that break a promise", red=True)
    for run, told in found.items():
        reporter.write_line(run)
        for line in told:
            reporter.write_line(f"  {line}")
    session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def marker() -> Iterator[str]:
    """A string for the environment of what is started.  Nothing that carries it may be left.

    A supervisor of its own that has ended its run, and is about to end itself, is waited for.
    """
    text = new_marker()
    yield text
    if left := wait_until_gone(text, within_s=2.0):
        kill_all(text)
        pytest.fail(f"left alive by this test: {[str(process) for process in left]}")


@pytest.fixture
def roll_call(tmp_path: Path) -> Iterator[RollCall]:
    """A FIFO on which the members of a tree report."""
    with RollCall(tmp_path) as call:
        yield call


@pytest.fixture
def home(tmp_path: Path) -> AgentctlHome:
    """A state directory of its own, with the command line for it."""
    return AgentctlHome(tmp_path / "home")
