"""The loading of a function and its arguments from ``module:function`` or ``path.py:function``."""

import difflib
import errno
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any

from agentctl_protocol.spec import SpecError, split_target


class TargetError(Exception):
    """The function does not exist, or cannot be an agent. ``kind`` names the exception class."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def load(target: str) -> Callable[..., object]:
    """Return the function that *target* names; import its module.

    Raises:
        TargetError: the function does not exist or cannot be an agent.
        BaseException: any exception that the module raises.
    """
    try:
        where, name = split_target(target)
    except SpecError as error:
        raise TargetError("ValueError", f"{error}: {error.hint}") from None
    module = _load_file(where) if where.endswith(".py") else _load_module(where)
    try:
        function = getattr(module, name)
    except AttributeError:
        text = f"{where} has no function {name!r}" + _did_you_mean(name, _functions_of(module))
        raise TargetError("AttributeError", text) from None
    if not callable(function):
        raise TargetError("TypeError", f"{target} is {type(function).__name__}, not a function")
    return function  # type: ignore[no-any-return]


def arguments_for(function: Callable[..., object], given: Any) -> tuple[Any, ...]:
    """Return the arguments to call *function* with: the input, or none if it takes none.

    A parameter that has a default keeps it if the input is None.

    Raises:
        TargetError: the function needs something else.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return () if given is None else (given,)
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p.name for p in positional if p.default is p.empty]
    needed_words = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if len(needed) > 1 or needed_words:
        names = ", ".join(needed + needed_words)
        raise TargetError("TypeError", f"an agent takes the input or nothing; this takes {names}")
    has_room = bool(positional) or any(p.kind is p.VAR_POSITIONAL for p in parameters)
    if needed or (has_room and given is not None):
        return (given,)
    return ()


def _load_file(path: str) -> ModuleType:
    full = os.path.abspath(path)
    if not os.path.isfile(full):
        folder, file = os.path.split(full)
        near = _did_you_mean(file, _list(folder))
        raise TargetError("FileNotFoundError", f"no file {path}" + near)
    # Named by its stem, and with its folder on sys.path, so that what it defines can be pickled.
    name = os.path.basename(full).removesuffix(".py").replace(".", "_")
    spec = importlib.util.spec_from_file_location(name, full, loader=_FromSource(name, full))
    if spec is None or spec.loader is None:
        raise TargetError("ImportError", f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    # A module may replace its own entry by another object, as import allows.
    return sys.modules.get(name, module)


class _FromSource(SourceFileLoader):
    """Loads the source file and not a compiled copy of it.

    A run may have left a ``.pyc`` beside it with a fitting header, but a person reads the source.
    """

    def path_stats(self, path: str) -> Mapping[str, Any]:
        """Raise OSError, so that a cached file is neither looked for nor written."""
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), path)


def _load_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise
        near = [f.removesuffix(".py") for path in sys.path[:8] for f in _list(path)]
        text = f"no module {error.name!r}" + _did_you_mean(name, near)
        raise TargetError("ModuleNotFoundError", text) from None


def _list(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder or ".") if name.endswith(".py")][:1000]
    except OSError:
        return []


def _functions_of(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", None) == module.__name__
    ]


def _did_you_mean(word: str, words: list[str]) -> str:
    near = difflib.get_close_matches(word, words, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
