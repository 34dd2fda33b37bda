"""Merge the settings of a run from command line, environment, profiles and files.

The order of precedence, the strongest first: an option; its environment variable; the chosen
profile (the project's, then the user's); the settings above all profiles (the project's, then the
user's).  The values of a list setting are joined over all of these.  For other settings, the
strongest value counts.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from agentctl_protocol.shell_words import shell_word
from agentctl_protocol.vocabulary import CONFINED, Network, Sandbox
from agentctl_supervisor.config import files, trust
from agentctl_supervisor.config.files import ConfigFile
from agentctl_supervisor.config.settings import KEYS, MOST, Place, Value
from agentctl_supervisor.errors import UsageError
from agentctl_supervisor.text.json_text import json_line
from agentctl_supervisor.text.suggestions import closest

PROFILE_VARIABLE: Final = "AGENTCTL_PROFILE"
_PREFIX: Final = "AGENTCTL_"
_NO_SETTINGS: Final = ("HOME", "PROFILE", "DEBUG", "CONTAINMENT", "CHANNEL_FD", "RUN_ID")
"""Variables of agentctl that are not settings, without the prefix."""
NO_FILES: Final = "none"
"""The profile name for which no file is read."""


class Settings(msgspec.Struct, frozen=True):
    """The settings that were made, by key, and where each came from; others are left out.

    ``passed_over``: see `files.passed_over`.
    """

    values: dict[str, Any]
    origins: dict[str, str]
    passed_over: str = ""

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of *key*, or *default*."""
        return self.values.get(key, default)

    def fields(self) -> dict[str, Any]:
        """Return the values by their field names in `RunSpec`."""
        return {KEYS[key].field: value for key, value in self.values.items()}


class Layer(msgspec.Struct, frozen=True):
    """The settings of one place.

    ``project``: True if they are from the project's file, which runs may be able to write.
    """

    values: Mapping[str, Value]
    origins: Mapping[str, str]
    project: bool = False


class Profiles(msgspec.Struct, frozen=True):
    """The settings of a file: above all profiles, of each profile, and the trusted projects."""

    top: Layer
    named: Mapping[str, Layer]
    trust: Sequence[str] = ()


def settings_of(
    flags: Mapping[str, Any], profile: str | None, cwd: str, environ: Mapping[str, str]
) -> Settings:
    """Return the settings for a run in *cwd*.

    *flags*: texts, or lists of texts, of the command line, by key; None if it was not given.
    *profile*: the name that ``-p`` gave, or None.

    Raises:
        UsageError: a value is not valid, or the project's file asks for too much.
    """
    spoken = [_flags(flags, cwd), _environment(environ, cwd)]
    named_by = "-p"
    if profile is None and (profile := environ.get(PROFILE_VARIABLE) or None):
        named_by = PROFILE_VARIABLE
    if profile == NO_FILES:
        return _merged(spoken)
    project, user = files.find_project(cwd, environ), files.find_user(environ)
    passed_over = files.passed_over(cwd, environ, project)
    if project is None and user is None and profile is None:  # the usual case
        return msgspec.structs.replace(_merged(spoken), passed_over=passed_over)
    home = files.home_directory(environ)
    ours = _profiles(user, home, project=False)
    theirs = _profiles(project, home, project=True)
    if project is not None and project.doubt and not _is_trusted(project, ours):
        raise UsageError(
            f"{project.shown}: {project.doubt}", hint=_trust_hint("-p none", project, environ)
        )
    picked = [] if profile is None else _picked(profile, (theirs, ours))
    if profile is not None and not picked:
        raise _no_such_profile(profile, named_by, (theirs, ours), (project, user))
    layers = [*spoken, *picked, theirs.top, ours.top]
    if project is not None and not _is_trusted(project, ours):
        _refuse_too_much(project, layers, cwd, environ)
    settings = _with_meaning(_merged(layers), spoken)
    return msgspec.structs.replace(settings, passed_over=passed_over)


def _flags(flags: Mapping[str, Any], cwd: str) -> Layer:
    given = {
        name: KEYS[name].read(raw, Place(f"--{name}", cwd))
        for name, raw in flags.items()
        if raw is not None and raw != []
    }
    return Layer(given, {name: f"flag --{name}" for name in given})


def _environment(environ: Mapping[str, str], cwd: str) -> Layer:
    """Return the settings in *environ*.

    Raises:
        UsageError: a value is not valid, or a name seems to be a misspelt setting.
    """
    _refuse_misspelt(environ)
    given = {
        name: key.read(text, Place(key.variable, cwd))
        for name, key in KEYS.items()
        if not key.many and (text := environ.get(key.variable))
    }
    return Layer(given, {name: f"env {KEYS[name].variable}" for name in given})


def _refuse_misspelt(environ: Mapping[str, str]) -> None:
    """Refuse variables that would be ignored silently and that resemble the name of a setting.

    Other variables with the prefix are accepted, since other programs may use it.
    """
    variables = {key.variable: key for key in KEYS.values()}
    known = [key.variable for key in KEYS.values() if not key.many]
    known += [_PREFIX + name for name in _NO_SETTINGS]
    for name in environ:
        if not name.startswith(_PREFIX) or name in known:
            continue
        if name in variables:
            raise UsageError(
                f"{name}: no variable sets a list",
                hint=f"--{variables[name].name} on the command line, or a profile",
            )
        if close := closest(name.removeprefix(_PREFIX), [k.removeprefix(_PREFIX) for k in known]):
            raise UsageError(
                f"{_cut(name)!r} in the environment is no setting",
                hint=f"did you mean {_PREFIX}{close}? unset it otherwise",
            )


# --- files ------------------------------------------------------------------


def _profiles(file: ConfigFile | None, home: str | None, *, project: bool) -> Profiles:
    """Return the settings in *file*.  All are checked, also in profiles that are not used.

    Raises:
        UsageError: a key or a value is not valid.
    """
    if file is None:
        return Profiles(Layer({}, {}), {})
    top = dict(file.table)
    tables = top.pop("profile", {})
    if not isinstance(tables, dict) or not all(isinstance(one, dict) for one in tables.values()):
        raise UsageError(f"{file.at('', 'profile')}: a profile is a table", hint="[profile.NAME]")
    trusted: list[str] = []
    if "trust" in top:
        where = file.at("", "trust")
        if project:
            raise UsageError(
                f"{where}: a project cannot say that it is trusted",
                hint="trust stands in the user's own file",
            )
        trusted = _trusted(top.pop("trust"), where, home)
    known = (*KEYS, "profile", *(() if project else ("trust",)))
    named = {
        name: _layer(file, home, f"profile.{name}", table, tuple(KEYS), project=project)
        for name, table in list(tables.items())[:MOST]
    }
    return Profiles(_layer(file, home, "", top, known, project=project), named, trusted)


def _layer(
    file: ConfigFile,
    home: str | None,
    table_name: str,
    table: Mapping[str, Any],
    known: Sequence[str],
    *,
    project: bool,
) -> Layer:
    values = {}
    for name, raw in table.items():
        where = file.at(table_name, name)
        if name not in KEYS:
            raise UsageError(f"{where}: no such key: {_cut(name)!r}", hint=_guess(name, known))
        inside = f"{table_name}.{name}" if table_name else name
        values[name] = KEYS[name].read(raw, Place(f"{where}: {inside}", file.directory, home))
    origin = f"{file.shown} [{table_name}]" if table_name else file.shown
    return Layer(values, dict.fromkeys(values, origin), project)


def _trusted(raw: Any, where: str, home: str | None) -> list[str]:
    place = Place(f"{where}: trust", "", home)
    if not isinstance(raw, list) or not all(isinstance(path, str) for path in raw):
        raise UsageError(f"{place.what}: a list of paths is wanted", hint='trust = ["/a/project"]')
    paths = [home + path[1:] if home and path.startswith("~/") else path for path in raw]
    for path in paths:
        if not path.startswith("/") or "\0" in path:
            raise UsageError(
                f"{place.what}: not an absolute path: {_cut(path)!r}", hint='"/a/project" or "~/p"'
            )
    return paths


def _picked(profile: str, both: Iterable[Profiles]) -> list[Layer]:
    return [one.named[profile] for one in both if profile in one.named]


def _no_such_profile(
    profile: str,
    named_by: str,
    both: Sequence[Profiles],
    found: Sequence[ConfigFile | None],
) -> UsageError:
    names = sorted({name for one in both for name in one.named})
    where = " or ".join(file.shown for file in found if file is not None)
    told = f"{named_by}: no profile {_cut(profile)!r}" + (f" in {where}" if where else "")
    if not where:
        return UsageError(told, hint=f"[profile.{_cut(profile)}] in {files.NAME} makes one")
    if close := closest(profile, names):
        return UsageError(told, hint=f"did you mean {close}?")
    listed = ", ".join(names[:8])
    return UsageError(told, hint=f"there is {listed}" if names else "there is none in there")


def _guess(word: str, known: Sequence[str]) -> str:
    if close := closest(word, known):
        return f"did you mean {close}?"
    return f"there is {', '.join(known)}"


def _cut(text: str) -> str:
    return text if len(text) <= 40 else text[:40] + "..."


# --- merging ------------------------------------------------------------------


def _merged(layers: Sequence[Layer]) -> Settings:
    """Merge *layers*, which are in order of precedence, the strongest first."""
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name, key in KEYS.items():
        holding = [layer for layer in layers if name in layer.values]
        if not holding:
            continue
        if key.many:
            # The strongest last: if a variable has two values, the later one counts.
            entries = [one for layer in reversed(holding) for one in _entries(layer, name)]
            values[name] = tuple(dict.fromkeys(entries))
            origins[name] = ", ".join(dict.fromkeys(layer.origins[name] for layer in holding))
        else:
            values[name] = holding[0].values[name]
            origins[name] = holding[0].origins[name]
    return Settings(values, origins)


def _with_meaning(settings: Settings, spoken: Sequence[Layer]) -> Settings:
    """Leave out settings of files about the workspace and paths if the run sees all files anyway.

    The levels basic and none show all files, so such settings have no meaning there.  On the
    command line they contradict the level, and "no network" contradicts such a level in every
    place.  These contradictions stay in the result and are refused later.
    """
    if settings.get("sandbox", Sandbox.STRICT) in CONFINED:
        return settings
    said = {name for layer in spoken for name in layer.values}
    idle = {"workspace", "ro", "rw", "unprotect"} - said
    return Settings(
        {name: value for name, value in settings.values.items() if name not in idle},
        {name: origin for name, origin in settings.origins.items() if name not in idle},
    )


def _entries(layer: Layer, name: str) -> tuple[str, ...]:
    value = layer.values.get(name, ())
    assert isinstance(value, tuple)
    return value


# --- what a project may ask for ------------------------------------------------


def _is_trusted(project: ConfigFile, ours: Profiles) -> bool:
    return trust.is_trusted(project.directory, ours.trust)


def _refuse_too_much(
    project: ConfigFile, layers: Sequence[Layer], cwd: str, environ: Mapping[str, str]
) -> None:
    others = _merged([layer for layer in layers if not layer.project]).values
    its = trust.Project(project.directory, cwd, files.home_directory(environ))
    wishes = list(trust.wishes(dict(_asked(layers)), others, its))
    if not wishes:
        return
    shown = " and ".join(_in_toml(wish) for wish in wishes[:3])
    more = f" and {len(wishes) - 3} more" if len(wishes) > 3 else ""
    once = " ".join(f"--{wish.key} {shell_word(_as_word(wish.value))}" for wish in wishes[:3])
    raise UsageError(
        f"{project.shown} asks for {shown}{more}, and a run can write that file",
        hint=_trust_hint(f"{once} for this once", project, environ),
    )


def _asked(layers: Sequence[Layer]) -> Iterator[tuple[str, Any]]:
    """Yield the settings that the project's layers decide."""
    for name, key in KEYS.items():
        holding = [layer for layer in layers if name in layer.values]
        if key.many:
            entries = [one for layer in holding if layer.project for one in _entries(layer, name)]
            if entries:
                yield name, tuple(dict.fromkeys(entries))
        elif holding and holding[0].project:
            yield name, holding[0].values[name]


def _in_toml(wish: trust.Wish) -> str:
    word = json_line(_as_word(wish.value))
    return f"{wish.key} = [{word}]" if KEYS[wish.key].many else f"{wish.key} = {word}"


def _as_word(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, (Sandbox, Network, str)):
        return str(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _trust_hint(otherwise: str, project: ConfigFile, environ: Mapping[str, str]) -> str:
    user = files.user_path(environ)
    where = files.shown_path(user, environ) if user else "the user's config.toml"
    directory = os.path.realpath(project.directory)
    return f"{otherwise}; for always, trust = [{json_line(directory)}] in {where}"
