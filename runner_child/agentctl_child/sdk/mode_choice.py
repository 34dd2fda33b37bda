"""The choice of the mode that an agent's function needs.

All modes are imported with this module, before the agent's paths are on ``sys.path``. The
exception is asyncio's mode, whose import takes 50 ms: it is imported when an agent's process has
the time.
"""

import functools
import inspect
from collections.abc import Callable

from agentctl_child.sdk.async_generator_mode import AsyncGeneratorMode
from agentctl_child.sdk.async_library import library_of
from agentctl_child.sdk.cancellation import Interruption
from agentctl_child.sdk.generator_mode import GeneratorMode
from agentctl_child.sdk.mode import Mode, SyncMode
from agentctl_child.sdk.trio_mode import TrioMode


def mode_for(function: Callable[..., object], interruption: Interruption) -> Mode:
    """Return the mode that *function* needs.

    Raises:
        TargetError: the mode cannot be determined, or the library is missing.
    """
    inner: object = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    for candidate in (inner, getattr(type(inner), "__call__", None)):  # noqa: B004 - not whether
        if inspect.iscoroutinefunction(candidate):
            return _loop_for(function, interruption)
        if inspect.isasyncgenfunction(candidate):
            return AsyncGeneratorMode(interruption, _loop_for(function, interruption))
        if inspect.isgeneratorfunction(candidate):
            return GeneratorMode(interruption)
    return SyncMode(interruption)


def mode_for_value(value: object, interruption: Interruption) -> Mode | None:
    """Return the mode that finishes the value of a function whose kind a decorator had hidden.

    None means that *value* is finished as it is.

    Raises:
        TargetError: as `mode_for`.
    """
    if inspect.iscoroutine(value):
        return _loop_for(value, interruption)
    if inspect.isasyncgen(value):
        return AsyncGeneratorMode(interruption, _loop_for(value, interruption))
    if inspect.isgenerator(value):
        return GeneratorMode(interruption)
    return None


def _loop_for(agent: object, interruption: Interruption) -> Mode:
    if library_of(agent) == "trio":
        return TrioMode(interruption)
    from agentctl_child.sdk.asyncio_mode import AsyncioMode

    return AsyncioMode(interruption)
