"""Which library runs an ``async def``: the rule, and that trio is the agent's own."""

from pathlib import Path

import pytest

from agentctl_protocol.messages import ErrorMessage, Ready
from agentctl_testkit.sdk import ForkedAgents, start_target

#: In the agent: which library runs this code.
WHICH = """
def which():
    import sys
    if "asyncio" in sys.modules:
        import asyncio
        try:
            asyncio.get_running_loop()
            return "asyncio"
        except RuntimeError: pass
    if "trio" in sys.modules:
        import trio
        trio.lowlevel.current_task()
        return "trio"
"""


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("async def main(): return which()", "asyncio"),
        ("import trio\nasync def main(): return which()", "trio"),
        ("import trio as t\nasync def main(): return which()", "trio"),
        ("from trio import sleep\nasync def main(): return which()", "trio"),
        ("from trio import Path\nasync def main(): return which()", "trio"),
        ("from trio import socket\nasync def main(): return which()", "trio"),
        ("import asyncio\nasync def main(): return which()", "asyncio"),
        ("from asyncio import sleep\nasync def main(): return which()", "asyncio"),
        ("import trio\nasync def main(): yield which()", "trio"),
        (("import agentctl_child\n@agentctl_child.runs_on('trio')\n"
         "async def main(): return which()"), "trio"),
        (("import agentctl_child, trio\n@agentctl_child.runs_on('asyncio')\n"
         "async def main(): return which()"), "asyncio"),
        (("import agentctl_child, asyncio, trio\n@agentctl_child.runs_on('trio')\n"
         "async def main(): yield which()"), "trio"),
        (("import functools, trio\nasync def given(_): return which()\n"
         "main = functools.partial(given, 1)"), "trio"),
        (("import trio\nclass Agent:\n    async def __call__(self): return which()\n"
         "main = Agent()"), "trio"),
        (("import trio\nclass Agent:\n    async def work(self): return which()\n"
         "main = Agent().work"), "trio"),
        ("import trio\nasync def given(): return which()\ndef main(): return given()", "trio"),
        (("import trio\nclass Odd:\n    def __getattr__(self, name): raise KeyError\n"
         "odd = Odd()\nasync def main(): return which()"), "trio"),
    ],
)  # fmt: skip
def test_library_is_the_one_that_the_module_imports_or_that_is_named(
    trio_agents: ForkedAgents, tmp_path: Path, source: str, expected: str
) -> None:
    """runs_on decides, then what the module imports, then it is asyncio."""
    path = tmp_path / "agent.py"
    path.write_text(WHICH + source)
    with trio_agents.start(f"{path}:main") as agent:
        assert agent.finish() == 0
        assert agent.texts() == [expected] or agent.value() == expected


def test_module_that_imports_both_libraries_is_asked_to_say_which(
    trio_agents: ForkedAgents, tmp_path: Path
) -> None:
    """Nothing is guessed: the error names the decorator to write."""
    path = tmp_path / "agent.py"
    path.write_text("import asyncio, trio\nasync def main(): pass")
    with trio_agents.start(f"{path}:main") as agent:
        assert agent.finish() == 1
        (error,) = agent.of(ErrorMessage)
        assert (error.kind, error.loading) == ("TypeError", True)
        assert "@agentctl_child.runs_on('trio')" in error.text
        assert agent.of(Ready) == []


def test_trio_that_is_not_there_is_an_error_of_loading(
    agents: ForkedAgents, tmp_path: Path
) -> None:
    """A function for trio in an interpreter without it says what is missing."""
    path = tmp_path / "agent.py"
    path.write_text(
        "import sys; sys.modules['trio'] = None\nfrom agentctl_child import runs_on\n"
        "@runs_on('trio')\nasync def main(): pass"
    )
    with agents.start(f"{path}:main") as agent:
        assert agent.finish() == 1
        (error,) = agent.of(ErrorMessage)
        assert error.loading
        assert "runs on trio" in error.text


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_agent_that_does_not_use_trio_has_none(tmp_path: Path, kind: str) -> None:
    """The SDK imports no trio of its own."""
    path = tmp_path / "agent.py"
    path.write_text(
        "import sys\nfrom agentctl_child import run\n"
        f"{kind} main():\n    run.emit_text('x')\n    return 'trio' in sys.modules"
    )
    with start_target(f"{path}:main") as agent:
        assert agent.finish() == 0
        assert agent.value() is False


def test_trio_works_in_a_program_and_inside_a_sync_function(
    trio_agents: ForkedAgents, tmp_path: Path
) -> None:
    """Whoever calls trio.run himself has async calls and inputs that know it."""
    path = tmp_path / "agent.py"
    path.write_text(
        "import trio\nfrom agentctl_child import run\n"
        "async def work():\n    async with run.tool_call('t'): return 'made'\n"
        "def main(): return trio.run(work)"
    )
    with trio_agents.start(f"{path}:main") as agent:
        assert agent.finish(grant=True) == 0
        assert agent.value() == "made"
