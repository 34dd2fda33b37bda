"""What counts where several places say something, and that a slip is one line with a hint."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Network, Sandbox
from agentctl_supervisor.config.profiles import Settings, settings_of
from agentctl_supervisor.config.settings import KEYS
from agentctl_supervisor.errors import UsageError


class Files:
    """A project and a user's directory, with what their files say."""

    def __init__(self, root: Path) -> None:
        self.project = root / "project"
        self.user = root / "user/agentctl/config.toml"
        for directory in (self.project, self.user.parent):
            directory.mkdir(parents=True)
        self.environ = {"XDG_CONFIG_HOME": str(root / "user"), "HOME": str(root / "home")}

    def say(self, project: str = "", user: str = "") -> None:
        (self.project / "agentctl.toml").write_text(project)
        self.user.write_text(user)
        self.user.chmod(0o600)

    def settings(
        self,
        flags: dict[str, Any] | None = None,
        profile: str | None = None,
        **environ: str,
    ) -> Settings:
        return settings_of(flags or {}, profile, str(self.project), {**self.environ, **environ})

    def refusal(
        self, flags: dict[str, Any] | None = None, profile: str | None = None, **environ: str
    ) -> str:
        """Both lines."""
        with pytest.raises(UsageError) as caught:
            self.settings(flags, profile, **environ)
        assert caught.value.exit_code == 2
        return f"{caught.value}\n{caught.value.hint}"


@pytest.fixture
def config(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_every_key_is_a_field_of_the_spec() -> None:
    """And is read to what that field holds."""
    assert {key.field for key in KEYS.values()} <= set(RunSpec.__struct_fields__)


def test_the_strongest_counts_and_is_named(config: Files) -> None:
    """Take the strongest away, and the next one counts, down to nobody."""
    config.say(
        'time = "4s"\n[profile.p]\ntime = "2s"',
        'time = "5s"\ntrust = ["/"]\n[profile.p]\ntime = "3s"',
    )
    seen = []
    for flags, environ, profile in (
        ({"time": "0.5s"}, {"AGENTCTL_TIME": "1s"}, "p"),
        ({}, {"AGENTCTL_TIME": "1s"}, "p"),
        ({}, {}, "p"),
        ({}, {}, None),
        ({}, {}, "none"),
    ):
        settings = config.settings(flags, profile, **environ)
        seen.append((settings.get("time"), settings.origins.get("time")))
    assert seen == [
        (0.5, "flag --time"),
        (1.0, "env AGENTCTL_TIME"),
        (2.0, "./agentctl.toml [profile.p]"),
        (4.0, "./agentctl.toml"),
        (None, None),
    ]
    config.say('[profile.q]\ntime = "2s"', 'time = "5s"\n[profile.p]\ntime = "3s"')
    assert config.settings(profile="p").get("time") == 3
    assert config.settings().origins["time"] == str(config.user)


def test_the_profile_may_be_named_in_the_environment(config: Files) -> None:
    """``-p`` counts before it; an empty variable is none."""
    config.say('[profile.a]\ntime = "1s"\n[profile.b]\ntime = "2s"')
    assert config.settings(AGENTCTL_PROFILE="a").get("time") == 1
    assert config.settings(profile="b", AGENTCTL_PROFILE="a").get("time") == 2
    assert config.settings(AGENTCTL_PROFILE="", AGENTCTL_TIME="").values == {}


def test_a_named_profile_comes_before_what_stands_above_all(config: Files) -> None:
    """Also the user's before the project's: somebody has just asked for it."""
    config.say('time = "10m"', '[profile.quick]\ntime = "30s"')
    assert config.settings(profile="quick").get("time") == 30


def test_lists_add_up_the_strongest_last(config: Files) -> None:
    """Of two values for one variable the later one counts, and that is the stronger one."""
    config.say('env = ["A=2", "B=1"]', 'env = ["A=1", "HOME"]')
    settings = config.settings({"env": ["A=3"]})
    assert settings.get("env") == ("A=1", "HOME", "A=2", "B=1", "A=3")
    assert settings.origins["env"] == f"flag --env, ./agentctl.toml, {config.user}"


def test_values_are_those_of_the_command_line(config: Files) -> None:
    """The same units and words; a bare number is seconds, or bytes."""
    config.say(
        """
        sandbox = "strict"
        net = "none"
        workspace = "src"
        ro = ["data", "."]
        time = "1h30m"
        grace = 1.5
        term-grace = 2
        output = "10M"
        """
    )
    project = config.project
    assert config.settings().values == {
        "sandbox": Sandbox.STRICT,
        "net": Network.NONE,
        "workspace": str(project / "src"),
        "ro": (str(project / "data"), str(project)),
        "time": 5400.0,
        "grace": 1.5,
        "term-grace": 2.0,
        "output": 10 << 20,
    }
    config.say(user='time = "none"\noutput = "none"\nrw = ["~/x", "/y"]')
    settings = config.settings({"ro": ["z"], "workspace": None})
    assert settings.values == {
        "ro": (str(project / "z"),),
        "rw": (f"{config.environ['HOME']}/x", "/y"),
        "time": None,
        "output": None,
    }
    assert settings.fields()["output_bytes"] is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('tme = "5s"', "./agentctl.toml:1: no such key: 'tme'\ndid you mean time?"),
        ("term_grace = 1", "did you mean term-grace?"),
        ("[profiles.ci]", "did you mean profile?"),
        ("zzz = 1", "there is sandbox, net, workspace"),
        ("\n[profile.ci]\nnett = 1", "./agentctl.toml:3: no such key: 'nett'\ndid you mean net?"),
        ("profile = 1", "./agentctl.toml:1: a profile is a table\n[profile.NAME]"),
        ("profile.ci = 1", "./agentctl.toml:1: a profile is a table"),
        ("[[profile]]", "a profile is a table"),
        ("time = true", "time: a text is wanted, not true or false"),
        ("time = 0", "time: 0 would end the run before it starts"),
        ("time = -1", "time: not a duration: '-1'"),
        ("time = nan", "time: not a duration: 'nan'"),
        ("time = 1979-05-27", "time: a text is wanted, not a date"),
        ('time = "5 parsecs"', "time: not a duration: '5 parsecs'"),
        ("[profile.ci]\ntime = []", "./agentctl.toml:2: profile.ci.time: a text is wanted"),
        ('output = "0"', "output: 0 would end the run"),
        ('output = "x"', "output: not a size: 'x'"),
        ('grace = "none"', "grace: not a duration: 'none'"),
        (
            'sandbox = "tight"',
            "no such sandbox level: 'tight'\nstrict or standard or basic or none",
        ),
        ("sandbox = 1", "sandbox: a text is wanted, not a number"),
        ('net = "wifi"', "no such network: 'wifi'\nnone or host"),
        ('ro = "data"', 'ro: a list of texts is wanted, not a text\nwrite ["a", "b"]'),
        ("ro = [1]", "ro: a list of texts is wanted, not a number"),
        ('ro = [""]', "ro: not a path: ''"),
        ('workspace = "a\\u0000b"', "workspace: not a path: 'a\\x00b'"),
        ('unprotect = [""]', "unprotect: not a name: ''"),
        ('env = ["=x"]', "env: not a variable: '=x'\nNAME or NAME=VALUE"),
        (f"ro = {['x'] * 257}", "ro: more than 256 entries"),
        ('trust = ["/"]', "./agentctl.toml:1: a project cannot say that it is trusted"),
    ],
)
def test_a_slip_in_a_file_is_told_with_its_place(config: Files, text: str, told: str) -> None:
    """Also in a profile that nobody asked for."""
    config.say(text)
    assert told in config.refusal()
    config.say(user=text)
    if "trust" not in text:
        assert told.replace("./agentctl.toml", str(config.user)) in config.refusal()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("trust = 1", "trust: a list of paths is wanted"),
        ("trust = [1]", "trust: a list of paths is wanted"),
        ('trust = ["here"]', "trust: not an absolute path: 'here'"),
        ('turst = ["/x"]', "no such key: 'turst'\ndid you mean trust?"),
    ],
)
def test_a_slip_in_the_list_of_trusted_projects(config: Files, text: str, told: str) -> None:
    """A path that is relative would be relative to the wrong thing."""
    config.say(user=text)
    assert told in config.refusal()


def test_a_slip_in_the_environment_names_the_variable(config: Files) -> None:
    """Not the option."""
    assert "AGENTCTL_TIME: not a duration: 'x'" in config.refusal(AGENTCTL_TIME="x")
    assert "AGENTCTL_TERM_GRACE:" in config.refusal(AGENTCTL_TERM_GRACE="x")
    assert "AGENTCTL_SANDBOX: no such" in config.refusal(AGENTCTL_SANDBOX="x")
    # Lists have no variable: where would one entry end?
    assert "AGENTCTL_RW: no variable sets a list\n--rw" in config.refusal(AGENTCTL_RW="/")


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("AGENTCTL_SANDBX", "AGENTCTL_SANDBOX"), ("AGENTCTL_TIMEOUT", "AGENTCTL_TIME")],
)
def test_a_misspelt_variable_is_not_ignored(config: Files, wrong: str, meant: str) -> None:
    """A protection that somebody asked for must not be missing without a word."""
    assert f"{wrong!r} in the environment is no setting\ndid you mean {meant}?" in config.refusal(
        None, None, **{wrong: "strict"}
    )


def test_another_programs_variable_of_our_prefix_is_left_alone(config: Files) -> None:
    """A run inside of another one's wrapper, a test suite: only what looks misspelt is refused."""
    assert config.settings(AGENTCTL_DEPLOY_REGION="eu", AGENTCTL_CHANNEL_FD="3,4").values == {}


def test_an_unknown_profile_is_guessed_at(config: Files) -> None:
    """With what there is, and where it was looked for."""
    told = config.refusal({}, "quick")
    assert told == "-p: no profile 'quick'\n[profile.quick] in agentctl.toml makes one"
    config.say('[profile.quick]\ntime = "1s"', "[profile.slow]")
    told = config.refusal({}, "quik")
    assert told == f"-p: no profile 'quik' in ./agentctl.toml or {config.user}\ndid you mean quick?"
    assert "there is quick, slow" in config.refusal({}, "nightly")
    assert config.refusal(AGENTCTL_PROFILE="nightly").startswith("AGENTCTL_PROFILE: no profile")
    assert config.settings(profile="slow").values == {}


def test_a_project_that_asks_for_more_is_refused_with_both_ways_out(config: Files) -> None:
    """Once by hand, or for always in the user's file."""
    config.say('net = "host"\nrw = ["/data"]\nenv = ["KEY"]\nsandbox = "basic"')
    told, hint = config.refusal().splitlines()
    assert told == (
        './agentctl.toml asks for sandbox = "basic" and net = "host" and rw = ["/data"]'
        " and 1 more, and a run can write that file"
    )
    assert hint == (
        "--sandbox basic --net host --rw /data for this once;"
        f' for always, trust = ["{config.project}"] in {config.user}'
    )


@pytest.mark.parametrize(
    ("flags", "environ", "profile"),
    [
        ({"net": "host"}, {}, None),
        ({"net": "none"}, {}, None),
        ({}, {"AGENTCTL_NET": "host"}, None),
        ({}, {}, "none"),
        ({}, {}, "open"),
    ],
)
def test_what_the_user_says_holds(
    config: Files, flags: dict[str, Any], environ: dict[str, str], profile: str | None
) -> None:
    """A wish that is not needed, or comes true anyway, refuses nothing."""
    config.say('net = "host"', '[profile.open]\nnet = "host"')
    assert "a run can write" in config.refusal()
    config.settings(flags, profile, **environ)


def test_what_a_file_says_of_files_is_idle_at_a_level_that_shows_all(config: Files) -> None:
    """Else nobody could name such a level in a project with a workspace of its own."""
    config.say('workspace = "src"\nro = ["data"]\ntime = "5s"')
    assert set(config.settings({"sandbox": "basic"}).values) == {"sandbox", "time"}
    assert set(config.settings({"sandbox": "standard"}).values) > {"workspace", "ro"}
    # What is said in the same breath is refused by the spec, so it stays.
    assert "ro" in config.settings({"sandbox": "basic", "ro": ["x"]}).values


def test_a_trusted_project_gets_what_it_asks_for(config: Files) -> None:
    """With its file as the origin."""
    config.say('net = "host"\nrw = ["/data"]', f'trust = ["{config.project}"]')
    settings = config.settings()
    assert (settings.get("net"), settings.get("rw")) == (Network.HOST, ("/data",))
    assert settings.origins["net"] == "./agentctl.toml"


def test_a_doubtful_file_is_refused_even_if_it_says_nothing(config: Files) -> None:
    """Unless the project is trusted."""
    config.say("")
    (config.project / "agentctl.toml").chmod(0o666)
    told = config.refusal()
    assert told.startswith("./agentctl.toml: everybody can write into it\n-p none; for always,")
    config.settings(profile="none")
    config.say(user=f'trust = ["{config.project}"]')
    config.settings()


def test_a_pyproject_has_the_same(config: Files) -> None:
    """In tables of its own, with its own lines."""
    file = config.project / "pyproject.toml"
    file.write_text('[project]\nname = "x"\n[tool.agentctl.profile.ci]\ntime = "5s"\n')
    settings = config.settings(profile="ci")
    assert (settings.get("time"), settings.origins["time"]) == (5, "./pyproject.toml [profile.ci]")
    file.write_text("[project]\ntme = 1\n[tool.agentctl]\n\ntme = 1\n")
    assert config.refusal().startswith("./pyproject.toml:5: no such key: 'tme'\n")
    file.write_text("tool.agentctl = 1\n")
    assert "tool.agentctl is not a table" in config.refusal()


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(key=st.sampled_from(sorted(KEYS)), value=_ANY)
def test_whatever_stands_in_a_file_is_a_setting_or_a_usage_error(key: str, value: Any) -> None:
    """Nothing that TOML can say raises anything else."""
    from agentctl_supervisor.config.settings import Place

    try:
        KEYS[key].read(value, Place("x", "/base", "/home"))
    except UsageError as error:
        assert len(str(error)) < 400
