"""Makes a process look to the agent's code as if Python had been started for it.

A forked agent comes from a process of ours: its ``sys.stdout``, ``sys.path``, ``__main__`` and
``sys.modules`` are not what a program expects.
"""

import gc
import importlib
import os
import signal
import site
import sys
import threading
from types import ModuleType
from typing import IO, Final

from agentctl_child.sdk.cancellation import RunCancelled
from agentctl_protocol.spawning import CHANNEL_FD_VARIABLE
from agentctl_protocol.spec import SpecError, split_target

_OURS: Final = ("agentctl_child", "agentctl_protocol", "agentctl_supervisor")


def prepare_process() -> None:
    """Set up signals and garbage collection before anything is sent.

    A write to a closed peer must be an error and must not kill the process.
    """
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.pop(CHANNEL_FD_VARIABLE, None)
    gc.enable()


def add_site_packages() -> None:
    """Add the packages of the environment as Python's start does, if that was skipped.

    The spawner is started with ``-S``. The code that ``.pth`` files and ``sitecustomize`` execute
    belongs to the agent, and may raise anything.
    """
    if sys.flags.no_site:
        site.main()


def prepare_python(target: str, paths: tuple[str, ...]) -> None:
    """Set import paths, ``sys.argv`` and ``__main__`` for *target*.

    Everything that our own code imports must have been imported by now.
    """
    where, folders = target, list(paths)
    try:
        where, _ = split_target(target)
    except SpecError:
        pass  # loading the target reports it
    if where.endswith(".py"):
        folder = os.path.dirname(os.path.abspath(where))
        if folder not in folders:
            folders.insert(0, folder)
    added = [folder for folder in folders if folder not in sys.path]
    sys.path[:] = folders + [path for path in sys.path if path not in folders]
    importlib.invalidate_caches()
    forget_shadowed(added)
    sys.argv[:] = [where]
    # No __spec__ and no __file__: multiprocessing then does not import a main module.
    sys.modules["__main__"] = ModuleType("__main__")
    _keep_threads_quiet_about_cancellation()


def forget_shadowed(folders: list[str]) -> None:
    """Forget imported modules that the agent has in *folders* under the same name.

    Ours are loaded in a process that was not the agent's. A program with a ``msgspec.py`` beside
    it means that file. We keep our references.
    """
    for folder in folders:
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for file in names:
            name = file.removesuffix(".py")
            module = sys.modules.get(name)
            if module is None or not _is_replaceable(name, module, folder):
                continue
            if name != file or os.path.isfile(os.path.join(folder, file, "__init__.py")):
                del sys.modules[name]


def flush_standard_streams() -> None:
    """Write out what the agent printed; a closed pipe or stream is no error of ours."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # noqa: BLE001, S110 - the stream may be an object of the agent's
            pass


def _is_replaceable(name: str, module: ModuleType, folder: str) -> bool:
    if name in _OURS or name in sys.builtin_module_names:
        return False
    spec = getattr(module, "__spec__", None)
    # The interpreter itself runs on the frozen modules.
    if spec is None or spec.origin == "frozen":
        return False
    file = getattr(module, "__file__", None)
    return file is None or not file.startswith(os.path.join(folder, ""))


def open_standard_streams() -> None:
    """Open ``sys.stdin``, ``sys.stdout`` and ``sys.stderr`` as Python does in UTF-8 mode."""
    # Bytes that are not UTF-8 pass through, as in Python's own UTF-8 mode.
    stdin = _stream(0, "r", "surrogateescape")
    # Line-buffered, also into pipes: the output of a killed agent must not be lost.
    stdout = _stream(1, "w", "surrogateescape")
    stderr = _stream(2, "w", "backslashreplace")
    vars(sys).update(
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        __stdin__=stdin,
        __stdout__=stdout,
        __stderr__=stderr,
    )


def _stream(descriptor: int, direction: str, errors: str) -> IO[str]:
    buffering = 1 if direction == "w" else -1
    return open(
        descriptor, direction, buffering=buffering, encoding="utf-8", errors=errors, closefd=False
    )


def _keep_threads_quiet_about_cancellation() -> None:
    shown = threading.excepthook

    def hook(given: threading.ExceptHookArgs) -> None:
        if not issubclass(given.exc_type, RunCancelled):
            shown(given)

    threading.excepthook = hook
