"""The choice of the library that runs an ``async def`` function: asyncio or trio.

The rules are applied in this order:

1. The library that `runs_on` names.
2. The library that the module of the function has imported, as a module or by one of its names.
   If it has imported both, an error asks for `runs_on`.
3. asyncio.

trio belongs to the agent and is never a dependency of ours. It is imported here only for a
function that runs on it.
"""

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from types import AsyncGeneratorType, CoroutineType, FunctionType, ModuleType
from typing import Any, Final, Literal, TypeAlias, TypeVar

from agentctl_child.sdk.target import TargetError

AsyncLibrary: TypeAlias = Literal["asyncio", "trio"]
_LIBRARIES: Final = ("asyncio", "trio")
_ATTRIBUTE: Final = "__agentctl_runs_on__"

_F = TypeVar("_F", bound=Callable[..., object])


def runs_on(library: AsyncLibrary) -> Callable[[_F], _F]:
    """Name the library that runs this ``async def``, if the imports of its module do not show it.

    Raises:
        ValueError: *library* is neither ``asyncio`` nor ``trio``.
    """
    if library not in _LIBRARIES:
        raise ValueError(f"an agent runs on {' or '.join(_LIBRARIES)}, not on {library!r}")

    def mark(function: _F) -> _F:
        setattr(function, _ATTRIBUTE, library)
        return function

    return mark


def library_of(agent: object) -> AsyncLibrary:
    """Return the library of *agent*: a function, or a coroutine or async generator from one.

    Raises:
        TargetError: its module has imported both.
    """
    layers = list(_layers(agent))
    for layer in layers:
        said = getattr(layer, _ATTRIBUTE, None)
        if said in _LIBRARIES:
            return said  # type: ignore[no-any-return]
    names = _globals_of(layers[-1])
    imported = [library for library in _LIBRARIES if _has_imported(names, library)]
    if len(imported) > 1:
        name = getattr(layers[-1], "__name__", "the agent")
        raise TargetError(
            "TypeError",
            f"the module of {name} imports asyncio and trio: which of them runs it?"
            " Write @agentctl_child.runs_on('trio') or ('asyncio') above it",
        )
    return "trio" if imported == ["trio"] else "asyncio"


def trio_module() -> Any:
    """Return the agent's trio.

    Raises:
        TargetError: the agent's interpreter has none.
    """
    try:
        return importlib.import_module("trio")
    except ModuleNotFoundError as error:
        raise TargetError("ModuleNotFoundError", f"the agent runs on trio, but: {error}") from None


def _layers(agent: object) -> Iterator[object]:
    """Yield *agent* and everything that it wraps, from the outside in."""
    while True:
        yield agent
        if isinstance(agent, functools.partial):
            agent = agent.func
        elif (wrapped := getattr(agent, "__wrapped__", None)) is not None:
            agent = wrapped
        elif inspect.ismethod(agent):
            agent = agent.__func__
        elif isinstance(agent, FunctionType | CoroutineType | AsyncGeneratorType):
            return
        else:
            call = inspect.getattr_static(type(agent), "__call__", None)
            if not isinstance(call, FunctionType):
                return
            agent = call


def _globals_of(agent: object) -> Mapping[str, object]:
    if isinstance(agent, FunctionType):
        return agent.__globals__
    frame = getattr(agent, "cr_frame", None) or getattr(agent, "ag_frame", None)
    return {} if frame is None else frame.f_globals


def _has_imported(names: Mapping[str, object], library: AsyncLibrary) -> bool:
    if library not in sys.modules:
        return False
    homes = set()
    for value in list(names.values()):
        # No attribute of any other object is read: that could run arbitrary code.
        if isinstance(value, ModuleType):
            homes.add(value.__name__)
        elif isinstance(value, FunctionType | type):
            homes.add(value.__module__)
    return any(home == library or str(home).startswith(library + ".") for home in homes)
