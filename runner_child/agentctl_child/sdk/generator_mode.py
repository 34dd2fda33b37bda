"""The mode for generator functions: yielded values are reported, the return value is the result.

A stop raises `RunCancelled` in the generator: where it blocks, or at the yield where it is
suspended. If it yields a value in response, that value is reported too, and then the generator is
closed.
"""

import functools
import inspect
from collections.abc import Callable, Generator
from typing import Any, cast

from agentctl_child.sdk.cancellation import RunCancelled
from agentctl_child.sdk.mode import SyncMode
from agentctl_child.sdk.yielded import report


class GeneratorMode(SyncMode):
    """Calls a generator function and runs the generator to its end."""

    def call(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> object:
        """Return or raise what the generator returns or raises."""
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
                    raise  # raised by the generator itself
                if isinstance(error, RunCancelled):
                    self._end(generator, error)
                    raise
                # An invalid value is an error at the place of its yield.
                step = functools.partial(generator.throw, error)

    def _end(self, generator: Generator[object, None, None], stop: RunCancelled) -> None:
        """Raise *stop* in a generator that is suspended at a yield, while *stop* is handled."""
        try:
            report(generator.throw(stop), self._interruption)
        except RunCancelled:
            pass
        finally:
            generator.close()


def _kept(
    generator: Generator[object, None, object], returned: list[object]
) -> Generator[object, None, None]:
    """Run *generator* and append its return value to *returned*: one step for the interpreter."""
    returned.append((yield from generator))
