"""Find what a program needs besides the system: its installation, its interpreter, its code."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from agentctl_supervisor.policy.installations import BIN, is_installation, prefix_parts
from agentctl_supervisor.policy.links import follow, is_beneath
from agentctl_supervisor.policy.unsuitable_directories import Places
from agentctl_supervisor.policy.untrusted_files import UnreadableError, beginning, is_there

_FIRST_BYTES: Final = 512
_CONFIG_BYTES: Final = 1 << 16
_MOST_HOPS: Final = 16

_INTERPRETER: Final = re.compile(
    r"(?P<kind>python|pypy|node|nodejs|bun|bash|dash|sh|zsh|ksh|ruby|perl|php|lua|Rscript)[\d.]*"
)
_TAKES_CODE: Final = {
    **dict.fromkeys(("python", "pypy"), "cm"),
    **dict.fromkeys(("bash", "dash", "sh", "zsh", "ksh"), "cs"),
    **dict.fromkeys(("node", "nodejs", "bun"), "ep"),
    **dict.fromkeys(("ruby", "perl", "lua", "Rscript"), "eE"),
    "php": "r",
}
"""Letters of options that take code or a module, so that no script follows; ``-ec`` has two."""
_TAKES_A_WORD: Final = {
    **dict.fromkeys(("python", "pypy"), ("-W", "-X")),
    **dict.fromkeys(("bash", "dash", "sh", "zsh", "ksh"), ("-o", "-O", "--rcfile", "--init-file")),
    **dict.fromkeys(("node", "nodejs", "bun"), ("-r", "--require", "--import", "-C")),
    **dict.fromkeys(("ruby", "perl"), ("-I", "-r", "-M", "-m")),
}


@dataclass(frozen=True)
class Program:
    """The paths that were found for a program.

    ``argv``: the program and its arguments.  The paths of program and script are valid in the
    run's directory.
    ``needs``: the installations that the program is in.
    ``code``: the files of the program itself.
    ``named``: the files of ``code`` that the caller named by a path.
    """

    argv: tuple[str, ...]
    needs: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    named: tuple[str, ...] = ()


@dataclass(frozen=True)
class Surroundings:
    """The surroundings in which a program is looked for.

    ``path``: the search path.
    ``here``: the supervisor's working directory.
    ``there``: the directory that the run starts in.  A relative path that exists from ``here`` but
    not from ``there`` is made absolute.
    ``writable``: directories that runs can write to.  A run may have written the content of a file
    there (a link, a ``#!`` line, a ``pyvenv.cfg``) to show the next run what that one should not
    see.  Such content is believed only if it leads to a directory that is an installation by its
    own content.
    """

    path: str
    here: str
    there: str
    places: Places
    writable: tuple[str, ...] = ()

    def believes(self, source: str, prefix: str) -> bool:
        """Return whether the content of the file *source* may cause *prefix* to be shown."""
        if not self._is_writable(source) or self._is_writable(prefix):
            return True
        return is_installation(prefix)

    def _is_writable(self, path: str) -> bool:
        real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        return any(is_beneath(real, directory) for directory in self.writable)


def look_up(argv: Sequence[str], where: Surroundings) -> Program:
    """Return the program that *argv* runs."""
    words = list(argv)
    here, there = where.here, where.there
    words[0] = _meant(words[0], here, there) if "/" in words[0] else words[0]
    found = _find(words[0], where.path, there)
    if found is None:
        return Program(tuple(words))
    needs = _needs(found, where)
    code = [found]
    named = [found] if "/" in words[0] else []
    at = _script(words)
    if at is not None:
        words[at] = _meant(words[at], here, there)
        if os.path.isfile(script := os.path.join(there, words[at])):
            code.append(script)
            named.append(script)
            if os.path.basename(os.path.dirname(os.path.abspath(script))) in BIN:
                needs += _prefixes(os.path.abspath(script), where)
    elif module := _module(words):
        code += module_code(module, there)
    return Program(
        tuple(words), tuple(dict.fromkeys(needs)), tuple(dict.fromkeys(code)), tuple(named)
    )


def module_code(module: str, directory: str) -> list[str]:
    """Return the file or package in *directory* that the top package of *module* is imported from.

    With a file, its ``__pycache__`` is returned too: Python uses the compiled code there instead
    of the source.

    Raises:
        UnreadableError: one of the paths cannot be examined.
    """
    top = os.path.join(directory, module.partition(".")[0])
    if is_there(top, follow=True):
        return [top]
    if not is_there(f"{top}.py", follow=True):
        return []
    compiled = os.path.join(directory, "__pycache__")
    return [f"{top}.py", *([compiled] if is_there(compiled, follow=True) else [])]


def interpreter(path: str, where: Surroundings) -> Program:
    """Return the interpreter *path* of a function as a program."""
    found = _find(path, where.path, where.here)
    if found is None:
        return Program((path,))
    return Program((path,), tuple(_needs(found, where)), (found,))


def _meant(path: str, here: str, there: str) -> str:
    if os.path.isabs(path) or here == there or os.path.exists(os.path.join(there, path)):
        return path
    from_here = os.path.join(here, path)
    return from_here if os.path.isfile(from_here) else path


def _find(program: str, path: str, directory: str) -> str | None:
    """Return the file that is executed if *program* is started in *directory*."""
    if "/" in program:
        candidates = [program]
    else:
        candidates = [os.path.join(entry, program) for entry in path.split(os.pathsep)]
    for candidate in candidates:
        full = os.path.abspath(os.path.join(directory, candidate))
        if os.path.isfile(full) and os.access(full, os.X_OK):
            return full
    return None


def _needs(file: str, where: Surroundings, *, depth: int = 1) -> list[str]:
    """Return the installations of *file* and of its interpreter."""
    needs = _prefixes(file, where)
    if depth and (named := _interpreter_line(file)):
        found = _find(named, where.path, where.there)
        if found is not None and where.believes(file, os.path.dirname(os.path.dirname(found))):
            needs += [found, *_needs(found, where, depth=depth - 1)]
    return needs


def _prefixes(file: str, where: Surroundings) -> list[str]:
    """Return the installations of *file* and of each link target, up to the last one."""
    needs: list[str] = []
    for hop in _hops(file, where):
        parent = os.path.dirname(hop)
        if os.path.basename(parent) not in BIN:
            continue
        needs.append(parent)
        prefix = os.path.dirname(parent)
        needs += prefix_parts(prefix, where.places)
        needs += _home_of_venv(prefix, where)
    return [need for need in needs if os.path.exists(need)]


def _hops(file: str, where: Surroundings) -> Iterator[str]:
    for _ in range(_MOST_HOPS):
        yield file
        try:
            target = os.readlink(file)
        except OSError:
            break
        # As the kernel does: ".." after a link is the parent of the link's target.
        try:
            parent = follow(os.path.dirname(os.path.join(os.path.dirname(file), target))).real
        except OSError:
            break
        source, file = file, os.path.join(parent, os.path.basename(target))
        if not where.believes(source, os.path.dirname(parent)):
            break


def _home_of_venv(prefix: str, where: Surroundings) -> list[str]:
    """Return where the interpreter of the virtual environment *prefix* is installed: PEP 405."""
    config = os.path.join(prefix, "pyvenv.cfg")
    text = _said(config, _CONFIG_BYTES)
    for line in text.decode("utf-8", "replace").splitlines():
        key, _, value = line.partition("=")
        if key.strip().lower() == "home" and os.path.isabs(home := value.strip()):
            if not where.believes(config, os.path.dirname(home)):
                return []
            return [home, *prefix_parts(os.path.dirname(home), where.places)]
    return []


def _said(file: str, most: int) -> bytes:
    """Return the first *most* bytes of *file*; empty if it cannot be read.

    That is safe, because the content can only add paths to the view.
    """
    try:
        return beginning(file, most) or b""
    except UnreadableError:
        return b""


def _interpreter_line(file: str) -> str:
    """Return the program that the ``#!`` line of *file* names, or the argument of ``env`` there."""
    first = _said(file, _FIRST_BYTES)
    if not first.startswith(b"#!"):
        return ""
    words = os.fsdecode(first[2:].partition(b"\n")[0]).split()
    if words and os.path.basename(words[0]) == "env":
        named = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        return named[0] if named else ""
    return words[0] if words else ""


def _script(words: Sequence[str]) -> int | None:
    """Return the index of the script in *words*, if they start an interpreter with a script."""
    kind = _kind(words[0])
    if kind is None:
        return None
    at = 1
    while at < len(words):
        word = words[at]
        if word == "--":
            return at + 1 if at + 1 < len(words) else None
        if not word.startswith("-"):
            return at
        if word in ("-", "--eval", "--print") or _has_code(kind, word):
            return None
        at += 2 if word in _TAKES_A_WORD.get(kind, ()) else 1
    return None


def _has_code(kind: str, option: str) -> bool:
    if option.startswith("--") or option in _TAKES_A_WORD.get(kind, ()):
        return False
    return any(letter in option for letter in _TAKES_CODE.get(kind, ""))


def _module(words: Sequence[str]) -> str:
    """Return the module if *words* are ``python -m MODULE``, else an empty text."""
    if _kind(words[0]) in ("python", "pypy") and "-m" in words[1:-1]:
        return words[words.index("-m", 1) + 1]
    return ""


def _kind(program: str) -> str | None:
    fits = _INTERPRETER.fullmatch(os.path.basename(program))
    return fits["kind"] if fits else None
