"""The agent's process: its start, its surroundings, its forks and its end."""

import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

from agentctl_child.agent import BOOTSTRAP
from agentctl_protocol.messages import (
    Ask,
    Bye,
    CallFinished,
    ErrorMessage,
    Hello,
    Ready,
    Start,
)
from agentctl_protocol.values import open_value, pack_value
from agentctl_testkit.sdk import (
    AGENTS,
    RUN_ID,
    ForkedAgents,
    StartAgent,
    start_process,
    start_target,
    write_agent,
)


@pytest.mark.parametrize(
    ("signature", "given", "expected"),
    [
        ("()", None, []),
        ("()", 1, []),
        ("(a)", None, [None]),
        ("(a)", 1, [1]),
        ("(a='default')", None, ["default"]),
        ("(a='default')", 1, [1]),
        ("(a, b='default')", 1, [1, "default"]),
        ("(*a)", 1, [[1]]),
        ("(*, a='default')", 1, ["default"]),
    ],
)
def test_function_takes_the_input_or_nothing(
    start: StartAgent, signature: str, given: object, expected: list[object]
) -> None:
    """The input is the one argument of a function that takes one."""
    agent = start(f"def main{signature}: return list(locals().values())", given=given)
    assert agent.finish() == 0
    assert agent.value() == expected


@pytest.mark.parametrize(
    ("source", "kind", "fragment"),
    [
        ("def mian(): pass", "AttributeError", "did you mean 'mian'?"),
        ("main = 7", "TypeError", "not a function"),
        ("def main(a, b): pass", "TypeError", "takes a, b"),
        ("def main(*, word): pass", "TypeError", "takes word"),
        ("def main(:", "SyntaxError", "agent_under_test.py"),
        ("import no_such_library", "ModuleNotFoundError", "no_such_library"),
        ("1 / 0", "ZeroDivisionError", "division"),
        ("sys.exit(3)", "SystemExit", "3"),
    ],
)
def test_agent_that_cannot_be_loaded_says_why(
    start: StartAgent, source: str, kind: str, fragment: str
) -> None:
    """Whatever keeps the function from being called is an error of loading."""
    agent = start(source)
    assert agent.finish() == 1
    (error,) = agent.of(ErrorMessage)
    assert (error.kind, error.loading) == (kind, True)
    assert fragment in error.text + error.traceback
    assert agent.of(Ready) == []


@pytest.mark.parametrize(
    ("target", "kind", "fragment"),
    [
        ("{folder}/agent_undertest.py:main", "FileNotFoundError", "agent_under_test.py"),
        ("agent_undertest:main", "ModuleNotFoundError", "did you mean 'agent_under_test'?"),
        ("agent_under_test.sub:main", "ModuleNotFoundError", "agent_under_test"),
        ("no target", "ValueError", "module:function"),
    ],
)
def test_target_that_is_not_there_is_named_with_a_suggestion(
    agents: ForkedAgents, tmp_path: Path, target: str, kind: str, fragment: str
) -> None:
    """A file, module or shape that is wrong is named, with what was probably meant."""
    write_agent(tmp_path, "def main(): pass")
    with agents.start(target.format(folder=tmp_path), paths=[str(tmp_path)]) as agent:
        assert agent.finish() == 1
        (error,) = agent.of(ErrorMessage)
        assert (error.kind, error.loading) == (kind, True)
        assert fragment in error.text


def test_module_target_is_found_on_the_paths_of_the_start_message(
    agents: ForkedAgents, tmp_path: Path
) -> None:
    """``module:function`` is imported from the given paths, packages included."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "inner.py").write_text("def main(): return __name__")
    with agents.start("package.inner:main", paths=[str(tmp_path)]) as agent:
        assert agent.finish() == 0
        assert agent.value() == "package.inner"


def test_a_file_is_what_stands_in_it(agents: ForkedAgents, tmp_path: Path) -> None:
    """And not what an earlier run has put beside it as compiled: Python believes its header."""
    file = tmp_path / "agent_here.py"
    file.write_text("def main(): return 'forged'")
    compiled = Path(py_compile.compile(str(file), doraise=True) or "")
    before = file.stat()
    file.write_text("def main(): return 'source'")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_size == before.st_size
    assert compiled.exists()
    with agents.start(f"{file}:main") as agent:
        assert agent.finish() == 0
        assert agent.value() == "source"


@pytest.mark.parametrize("name", ["protocol", "msgspec", "asyncio", "queue", "agent", "inputs"])
@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("is_warm", [False, True])
def test_agent_with_modules_of_our_names_gets_its_own(
    agents: ForkedAgents, tmp_path: Path, name: str, kind: str, is_warm: bool
) -> None:
    """An agent's ``msgspec.py`` is what it imports, and the SDK goes on with the real one."""
    (tmp_path / f"{name}.py").write_text("MINE = True")
    path = tmp_path / "agent_with_modules.py"
    path.write_text(
        f"import {name}\nfrom agentctl_child import run\n"
        f"{kind} main(given):\n"
        "    run.emit_text('works')\n"
        "    with run.tool_call('t') as call: call.result = {'a': [1]}\n"
        f"    return {name}.MINE\n"
    )
    target = f"{path}:main"
    with agents.start(target) if is_warm else start_target(target) as agent:
        assert agent.finish(grant=True) == 0
    assert agent.value() is True
    assert agent.texts() == ["works"]


def test_python_looks_as_if_started_for_the_agent(start: StartAgent, tmp_path: Path) -> None:
    """Names, paths and environment are the agent's, with nothing of the SDK's in them."""
    agent = start(
        """
        def main():
            import __main__
            return {
                "name": __name__, "file": __file__, "argv": sys.argv, "path": sys.path[0],
                "main": hasattr(__main__, "__file__"), "fd": "AGENTCTL_CHANNEL_FD" in os.environ,
                "run": os.environ["AGENTCTL_RUN_ID"], "encoding": sys.stdout.encoding,
                "threads": len(threading.enumerate()),
            }
        """
    )
    assert agent.finish() == 0
    path = str(tmp_path / "agent_under_test.py")
    assert agent.value() == {
        "name": "agent_under_test",
        "file": path,
        "argv": [path],
        "path": str(tmp_path),
        "main": False,
        "fd": False,
        "run": RUN_ID,
        "encoding": "utf-8",
        "threads": 1,
    }


def test_output_is_the_agents_alone_and_is_flushed(start: StartAgent) -> None:
    """The SDK prints nothing; what the agent prints is written out, whatever its bytes."""
    agent = start(
        """
        def main():
            print("ü \\udcff", end="")
            sys.stderr.write("to stderr")
            return sys.stdin.read()
        """
    )
    assert agent.process.stdin is not None
    assert agent.process.stdout is not None
    agent.process.stdin.write("from stdin ü".encode())
    agent.process.stdin.close()
    agent.process.stdin = None
    assert agent.finish() == 0
    assert agent.value() == "from stdin ü"
    assert agent.process.stdout.read() == "ü ".encode() + b"\xff"
    assert agent.stderr() == "to stderr"


def test_agent_that_closes_its_output_still_ends_well(start: StartAgent) -> None:
    """Streams that cannot be flushed do not change the outcome."""
    agent = start("def main(): sys.stdout.close(); sys.stderr = None; return 1")
    assert agent.finish() == 0
    assert agent.value() == 1


@pytest.mark.parametrize(
    "waiting",
    [
        "time.sleep(600)",
        "run.inputs().__next__()",
        "run.tool_call('t').__enter__()",
        "\n  try: time.sleep(600)\n  except BaseException: time.sleep(600)",
        "\n  for n in range(10**9): run.emit_text('x' * 1000)",
    ],
)
def test_end_of_the_channel_ends_the_process_at_once(start: StartAgent, waiting: str) -> None:
    """An agent whose supervisor is gone exits with 70, whatever it is doing."""
    agent = start(f"def main(): {waiting}")
    agent.hear(Ready)
    agent.end.close()
    assert agent.wait() == 70


def test_end_of_the_channel_before_the_start_ends_the_process() -> None:
    """An agent that never gets its start message does not wait for ever."""
    with start_process([sys.executable, "-I", "-c", BOOTSTRAP]) as agent:
        agent.hear(Hello)
        agent.end.close()
        assert agent.wait() == 70


def test_illegal_bytes_from_the_supervisor_end_the_process(start: StartAgent) -> None:
    """A channel that makes no sense any more is no supervision."""
    agent = start("def main(): time.sleep(600)")
    agent.hear(Ready)
    agent.end.sendall(b"\xff" * 8)
    assert agent.finish() == 70


def test_sigterm_kills_as_it_kills_any_program(start: StartAgent) -> None:
    """SIGTERM keeps its default action."""
    agent = start("def main(): time.sleep(600)")
    agent.hear(Ready)
    agent.process.terminate()
    assert agent.finish() == -15


@pytest.mark.parametrize(
    ("in_child", "status"),
    [
        ("os._exit(5)", 5),
        ("sys.exit(5)", 5),
        ("return 'from the child'", 0),
        ("raise ValueError('in the child')", 1),
    ],
)
def test_fork_of_the_agent_is_not_the_run(start: StartAgent, in_child: str, status: int) -> None:
    """A forked child may report, ask, return or raise: the channel knows nothing of it."""
    agent = start(
        f"""
        def main():
            def flood():
                for number in range(20000): run.emit_text(str(number))
            thread = threading.Thread(target=flood)
            thread.start()
            pid = os.fork()
            if pid == 0:
                assert not run.supervised
                run.emit_text("child")
                run.flush()
                with run.tool_call("child"): pass
                run.checkpoint("child")
                {in_child}
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            thread.join()
            return status
        """
    )
    assert agent.finish() == 0
    assert agent.value() == status
    assert agent.texts() == [str(number) for number in range(20000)]
    assert agent.of(Ask) == []


def test_fork_gives_the_channel_up(start: StartAgent) -> None:
    """A child that outlives the agent does not hold the channel open."""
    agent = start(
        """
        def main():
            pid = os.fork()
            if pid == 0:
                time.sleep(600)
            return pid
        """
    )
    assert agent.finish() == 0
    os.kill(int(str(agent.value())), 9)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_works_in_an_agent(start: StartAgent, method: str) -> None:
    """Functions of the agent's module can be pickled for worker processes, which may use run."""
    agent = start(
        f"""
        def square(number):
            run.emit_text("dropped")
            return number * number
        def main():
            import multiprocessing
            with multiprocessing.get_context({method!r}).Pool(2) as pool:
                return pool.map(square, range(4))
        """
    )
    assert agent.finish() == 0, agent.stderr()
    assert agent.value() == [0, 1, 4, 9]
    assert agent.events() == []


def test_call_is_asked_granted_and_finished(start: StartAgent) -> None:
    """A call tells its arguments before and its result or its error after."""
    agent = start(
        """
        def main():
            with run.tool_call("add", {"a": 1}) as call: call.result = [2]
            try:
                with run.model_call("think", "request"): raise KeyError("no")
            except KeyError: pass
            with run.tool_call("big", "x" * 2_000_000) as call: call.result = "y" * 2_000_000
        """
    )
    assert agent.finish(grant=True) == 0
    add, think, big = agent.of(Ask)
    assert (add.kind, add.name, open_value(add.args)) == ("tool", "add", {"a": 1})
    assert (think.kind, think.name, open_value(think.args)) == ("model", "think", "request")
    assert open_value(big.args)["bytes"] == 2_000_005
    added, thought, grown = agent.of(CallFinished)
    assert (added.call, added.outcome, open_value(added.result)) == (add.call, "ok", [2])
    assert (thought.outcome, thought.error) == ("error", "KeyError: 'no'")
    assert open_value(grown.result)["bytes"] == 2_000_005


def test_refused_call_raises_and_is_not_finished(start: StartAgent) -> None:
    """CallRefused carries the supervisor's words; the block is not entered."""
    agent = start(
        """
        def main():
            try:
                with run.tool_call("delete"): return "made"
            except CallRefused as refused: return [refused.why, str(refused)]
        """
    )
    agent.refuse(agent.hear(Ask), "by policy")
    assert agent.finish() == 0
    assert agent.value() == ["by policy", "delete: by policy"]
    assert agent.of(CallFinished) == []


def test_program_connects_at_its_first_use_of_run() -> None:
    """A program says hello, waits for its start, and says bye when it exits."""
    with start_process([sys.executable, str(AGENTS / "polite_program.py")]) as agent:
        agent.hear(Hello)
        agent.say(Start(run=RUN_ID, input=pack_value("go")))
        assert agent.finish(grant=True) == 0
        assert agent.stdout() == "supervised: True, input: go\n"
        assert agent.texts() == ["hello"]
        assert agent.heard[-1] == Bye()


def test_program_is_cancelled_like_a_function() -> None:
    """RunCancelled reaches a program, which ends without a traceback."""
    with start_process([sys.executable, str(AGENTS / "polite_program.py")]) as agent:
        agent.hear(Hello)
        agent.say(Start(run=RUN_ID, input=pack_value("sleep")))
        agent.grant(agent.hear(Ask))
        agent.hear(CallFinished)
        agent.cancel()
        assert agent.finish() == 1
        assert agent.was_cancelled
        assert agent.stderr() == ""


def test_outside_agentctl_run_is_a_harmless_stand_in() -> None:
    """Run by hand, a program reports to nobody, is granted its calls, and has no input."""
    ended = subprocess.run(
        [sys.executable, AGENTS / "polite_program.py"], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "supervised: False, input: None\n"


@pytest.mark.parametrize("numbers", ["", "x", "3", "-1,-1", "0,1", "998,999", "3,4,5", " 3,4"])
def test_channel_numbers_that_are_no_pipes_mean_no_supervisor(numbers: str) -> None:
    """A grandchild that inherits only the variable works as if run by hand."""
    assert _run_with_channel(numbers) == (0, "")


def test_a_pipe_of_the_programs_own_is_no_channel() -> None:
    """The first pipe that it makes often has the numbers of a channel that it did not inherit."""
    one, other = os.pipe(), os.pipe()
    own = (*one, *other)
    same, swapped = f"{one[0]},{one[1]}", f"{one[1]},{other[0]}"
    try:
        assert _run_with_channel(same, *own) == (0, "")
        assert _run_with_channel(swapped, *own) == (0, "")
    finally:
        for descriptor in own:
            os.close(descriptor)


def _run_with_channel(numbers: str, *inherited: int) -> tuple[int, str]:
    ended = subprocess.run(
        [sys.executable, AGENTS / "polite_program.py"],
        env={**os.environ, "AGENTCTL_CHANNEL_FD": numbers},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        pass_fds=inherited,
        check=False,
    )
    return ended.returncode, ended.stderr


def test_a_file_with_the_number_of_a_closed_channel_is_not_written_to(
    start: StartAgent, tmp_path: Path
) -> None:
    """An agent that closes all descriptors, as daemons do, ends as one without a supervisor."""
    files = tmp_path / "files"
    files.mkdir()
    agent = start(
        f"""
        def main():
            os.closerange(3, 4096)
            files = [os.open(f"{files}/{{n}}", os.O_RDWR | os.O_CREAT) for n in range(8)]
            run.emit_text("said")
            time.sleep(600)
        """
    )
    assert agent.finish() == 70
    # Its end may come before the last of them is opened.
    assert {file.read_bytes() for file in files.iterdir()} <= {b""}


def test_interpreter_without_msgspec_says_so_over_the_channel() -> None:
    """The bootstrap reports what the interpreter lacks, without the library it lacks."""
    hidden = "import sys; sys.modules['msgspec'] = None\n" + BOOTSTRAP
    with start_process([sys.executable, "-I", "-c", hidden]) as agent:
        assert agent.finish() == 1
        (error,) = agent.of(ErrorMessage)
        assert error.loading
        assert "install agentctl-child" in error.text


@pytest.mark.parametrize("module", ["msgspec", "agentctl_child"])
def test_interpreter_that_cannot_import_what_it_has_says_so(module: str) -> None:
    """Over the channel that it failed, and on stderr why: for another Python, a broken build."""
    broken = f"""\
import sys
class Broken:
    def find_spec(self, name, *_):
        if name == {module!r}:
            raise SystemError("built for another one")
sys.meta_path.insert(0, Broken())
"""
    with start_process([sys.executable, "-I", "-c", broken + BOOTSTRAP]) as agent:
        assert agent.finish() == 1
        (error,) = agent.of(ErrorMessage)
        assert error.loading
        assert "cannot import" in error.text
        assert agent.process.stderr is not None
        assert b"built for another one" in agent.process.stderr.read()


def test_a_fault_of_ours_before_the_first_line_ends_the_run_with_its_reason(
    agents: ForkedAgents,
) -> None:
    """Here: a path that stands for no name, of which only a broken supervisor tells."""
    with agents.start("m:main", paths=["\0zz"]) as agent:
        assert agent.finish() == 70
        (error,) = agent.of(ErrorMessage)
        assert (error.kind, error.loading) == ("ValueError", True)
        assert "not a name" in error.text


def test_interpreter_without_our_package_uses_the_one_beside_the_supervisor(
    tmp_path: Path,
) -> None:
    """All that the agent's interpreter needs is msgspec; its import paths stay its own."""
    write_agent(tmp_path, "def main(): return [p for p in sys.path if 'runner_child' in p]")
    roots = "import sys; import msgspec; sys.path[:] = [p for p in sys.path if not"
    hidden = f"{roots} p.endswith(('runner_child', 'protocol'))]\n" + BOOTSTRAP
    with start_process([sys.executable, "-I", "-c", hidden]) as agent:
        agent.hear(Hello)
        agent.say(Start(run=RUN_ID, target=f"{tmp_path}/agent_under_test.py:main"))
        assert agent.finish() == 0
        assert agent.value() == []
