"""Of what programs are installed in, a run sees what they need, and no passwords beside it."""

import os
from pathlib import Path

import pytest

from agentctl_supervisor.policy.installations import beside, prefix_parts
from agentctl_supervisor.policy.unsuitable_directories import Places


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """Of somebody whose home is ``ada``."""
    home = tmp_path.resolve() / "ada"
    home.mkdir()
    return Places(homes=(str(home),), home=str(home), states=())


def _made(places: Places, *names: str) -> None:
    for name in names:
        path = Path(places.home, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def _beside(places: Places, directory: str) -> set[str]:
    found = beside(f"{places.home}/{directory}", places)
    return {os.path.relpath(path, places.home) for path in found}


def test_a_home_directory_is_no_installation(places: Places) -> None:
    """~/bin/tool does not show the whole of ~, nor ~/.local/bin/tool all of ~/.local."""
    home = places.home
    for prefix in ("/", os.path.dirname(home), home, f"{home}/.local"):
        assert prefix not in prefix_parts(prefix, places)
        assert os.path.join(prefix, "lib") in prefix_parts(prefix, places)
    assert prefix_parts(f"{home}/tool", places) == [f"{home}/tool"]


def test_a_programs_own_directory_is_not_shown_whole(places: Places) -> None:
    """~/.cargo has a password for crates.io in it, and ~/.fly one for what runs there."""
    parts = prefix_parts(f"{places.home}/.cargo", places)
    assert f"{places.home}/.cargo" not in parts
    assert f"{places.home}/.cargo/bin" in parts
    _made(places, ".env/pyvenv.cfg", ".env/lib/x")
    assert prefix_parts(f"{places.home}/.env", places) == [f"{places.home}/.env"]


def test_what_stands_in_for_others_comes_with_them(places: Places) -> None:
    """A script that calls python3 or cargo finds them: shims alone are no use."""
    _made(places, ".pyenv/shims/python3", ".pyenv/versions/3.12/bin/python", ".pyenv/version")
    _made(places, ".pyenv/libexec/pyenv", ".pyenv/secret")
    shown = {".pyenv/shims", ".pyenv/versions", ".pyenv/version", ".pyenv/libexec"}
    assert _beside(places, ".pyenv/shims") == shown
    _made(places, ".cargo/bin/rustup", ".cargo/credentials.toml")
    shown = {".cargo/bin", ".rustup/toolchains", ".rustup/settings.toml"}
    assert _beside(places, ".cargo/bin") == shown


def test_node_and_python_come_with_what_is_installed_in_them(places: Places) -> None:
    """Npm is a link into lib: nothing of nvm's works without."""
    _made(places, ".nvm/versions/node/v22/bin/node")
    _made(places, ".nvm/versions/node/v22/lib/node_modules/npm/package.json")
    assert _beside(places, ".nvm/versions/node/v22/bin") == {".nvm/versions/node/v22"}


def test_what_else_is_on_the_search_path_brings_nothing(places: Places) -> None:
    """~/project/bin does not show the project, nor ~/go/bin what was written there."""
    _made(places, "project/bin/tool", "project/notes", "go/bin/tool", "go/src/x", "bin/tool")
    for directory in ("project/bin", "go/bin", "bin"):
        assert _beside(places, directory) == set()
