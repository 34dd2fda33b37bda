"""Generator functions: what they yield is reported, what they return is the result.

A stop raises `RunCancelled` in the generator: where it blocks, or at the yield where it
stands.  What it yields in answer is reported too, and then it is closed.
"""

import functools
import inspect
from collections.abc import Callable, Generator
from typing import Any, cast

from agentctl_child.sdk.cancellation import RunCancelled
from agentctl_child.sdk.mode import SyncMode
from agentctl_child.sdk.yielded import report


class GeneratorMode(SyncMode):
    """Calls a generator function and runs what it gives to its end."""

    def call(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> object:
        """What the generator returns or raises."""
        returned: list[object] = []
        generator = cast("Generator[object, None, object]", function(*arguments))
        try:
            self._exhaust(_kept(generator, returned))
        except BaseException:
            # A value that was returned is kept even if the stop comes in the same moment.
            if not returned:
                raise
        return returned[0]

    def _exhaust(self, generator: Generator[object, None, None]) -> None:
        step: Callable[[], object] = functools.partial(next, generator)
        while True:
            try:
                value = step()
                step = functools.partial(next, generator)
                report(value, self._interruption)
            except StopIteration:
                return
            except BaseException as error:
                if inspect.getgeneratorstate(generator) == inspect.GEN_CLOSED:
                    raise  # it came out of the generator
                if isinstance(error, RunCancelled):
                    self._end(generator, error)
                    raise
                # A mistake is an error where it was made: at the yield.
                step = functools.partial(generator.throw, error)

    def _end(self, generator: Generator[object, None, None], stop: RunCancelled) -> None:
        """Raise *stop* in a generator that stands at a yield.  Called while that is handled."""
        try:
            report(generator.throw(stop), self._interruption)
        except RunCancelled:
            pass
        finally:
            generator.close()


def _kept(
    generator: Generator[object, None, object], returned: list[object]
) -> Generator[object, None, None]:
    """*generator*, with what it returns appended: one step to the interpreter."""
    returned.append((yield from generator))
