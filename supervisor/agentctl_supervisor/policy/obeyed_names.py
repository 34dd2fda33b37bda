"""The table of names that programs execute or obey without being asked.

A process that can write a file with such a name controls what the user's shell, editor, version
control or coding agent does next, outside of every sandbox.  A name is in the table if a program
obeys it after it was started, or entered a directory, for another purpose.  A Makefile, a CI
workflow or a test is not in the table, because the user runs it on purpose.

Protection, the ``exposed`` list of a report, its words and the documentation all use this table.
"""

from typing import Final, NamedTuple


class ObeyedName(NamedTuple):
    """A path relative to a directory, and the reason why it is in the table.

    ``anywhere``: True if programs obey it in every directory that a user works in, and not only
    at the top of a project or of a home directory.
    """

    name: str
    why: str
    anywhere: bool = False


def _all(why: str, *names: str, anywhere: bool = False) -> tuple[ObeyedName, ...]:
    return tuple(ObeyedName(name, why, anywhere) for name in names)


SETTINGS: Final = "agentctl takes its settings from it"
OF_A_REPOSITORY: Final = frozenset({"config", "config.worktree", "commondir", "hooks"})
"""Names in a repository directory that git executes, or in which git reads what it executes."""

_SHELL: Final = "shells execute it"
_AGENT: Final = "coding agents follow it"
_AGENT_RUNS: Final = "coding agents run its hooks and follow it"
_EDITOR: Final = "the editor runs its tasks and uses its settings"
_GIT_HOOKS: Final = "it says what git's hooks execute"
_TOOLS: Final = "tool managers execute what it names when the directory is entered"
_STARTS: Final = "executes it when it is started in the directory"

OBEYED: Final = (
    # Version control.
    ObeyedName(".git", "as a file it says where git finds its hooks", anywhere=True),
    ObeyedName(".git/hooks", "git executes them", anywhere=True),
    ObeyedName(
        ".git/config", "git executes what it names: pagers, filters, monitors", anywhere=True
    ),
    ObeyedName(".git/config.worktree", "git reads it as its config", anywhere=True),
    ObeyedName(".git/commondir", "it says where git finds its hooks and config", anywhere=True),
    ObeyedName(
        ".git/info/attributes",
        "it says which of the filters in its config git executes",
        anywhere=True,
    ),
    ObeyedName(".gitmodules", "git fetches what it names"),
    ObeyedName(".gitconfig", "git executes what it names"),
    ObeyedName(".hg/hgrc", "Mercurial executes its hooks and extensions", anywhere=True),
    ObeyedName(".hgrc", "Mercurial executes its hooks and extensions"),
    ObeyedName(".jj/repo", "jj executes what its config names", anywhere=True),
    ObeyedName(".bzr/branch/branch.conf", "Breezy executes what it names", anywhere=True),
    ObeyedName("_darcs/prefs", "darcs executes what its defaults name", anywhere=True),
    # Programs that start git's hooks.
    *_all(_GIT_HOOKS, ".husky", ".huskyrc", ".pre-commit-config.yaml", ".pre-commit-config.yml"),
    *_all(_GIT_HOOKS, "prek.toml", ".overcommit.yml", ".lefthook"),
    *_all(_GIT_HOOKS, "lefthook.yml", "lefthook.yaml", "lefthook.toml", "lefthook.json"),
    *_all(_GIT_HOOKS, ".lefthook.yml", ".lefthook.yaml", ".lefthook.toml", ".lefthook.json"),
    *_all(_GIT_HOOKS, "lefthook-local.yml", "lefthook-local.yaml"),
    *_all(_GIT_HOOKS, ".lefthook-local.yml", ".lefthook-local.yaml"),
    # Shells and what they start: in a home directory, or in a directory that becomes one.
    *_all(_SHELL, ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases"),
    *_all(_SHELL, ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout"),
    *_all(_SHELL, ".cshrc", ".tcshrc", ".login", ".logout", ".kshrc", ".mkshrc"),
    *_all(_SHELL, ".config/fish", ".config/nushell", ".xonshrc"),
    *_all("the desktop executes it at login", ".xprofile", ".xinitrc", ".xsession", ".xsessionrc"),
    *_all("the desktop starts what is in it", ".config/autostart", ".config/systemd"),
    ObeyedName(".ssh", "ssh executes what its config names, and trusts its keys"),
    ObeyedName(".netrc", "programs send the passwords in it"),
    # Tool managers.
    *_all(_TOOLS, ".envrc", ".env.zsh", ".autoenv", ".autoenv.zsh", anywhere=True),
    *_all(_TOOLS, "mise.toml", ".mise.toml", "mise.local.toml", ".mise.local.toml", anywhere=True),
    *_all(_TOOLS, ".mise", ".config/mise.toml", ".config/mise", ".rtx.toml"),
    *_all(_TOOLS, ".tool-versions", ".prototools", "devbox.json", anywhere=True),
    *_all(_TOOLS, "rust-toolchain", "rust-toolchain.toml", anywhere=True),
    *_all("npm executes what it names", ".npmrc", anywhere=True),
    *_all("yarn executes what it names", ".yarnrc", ".yarnrc.yml", anywhere=True),
    *_all("pnpm executes it", ".pnpmfile.cjs", ".pnpmfile.mjs", anywhere=True),
    *_all("bun executes what it names", "bunfig.toml", ".bunfig.toml", anywhere=True),
    *_all("cargo executes what it names", ".cargo/config.toml", ".cargo/config", anywhere=True),
    ObeyedName(".mvn", "Maven loads its extensions whatever it is asked for", anywhere=True),
    ObeyedName(".pypirc", "uploads go where it says"),
    # Interpreters and debuggers.
    *_all(
        "Python executes it whenever it starts, where the directory is searched",
        "sitecustomize.py",
        "usercustomize.py",
    ),
    ObeyedName(".pdbrc", f"pdb {_STARTS}", anywhere=True),
    *_all(f"R {_STARTS}", ".Rprofile", ".Renviron", anywhere=True),
    *_all(f"irb {_STARTS}", ".irbrc", "_irbrc", anywhere=True),
    ObeyedName(".pryrc", f"pry {_STARTS}", anywhere=True),
    ObeyedName(".ghci", f"ghci {_STARTS}", anywhere=True),
    ObeyedName(".octaverc", f"Octave {_STARTS}", anywhere=True),
    *_all(f"gdb {_STARTS}", ".gdbinit", ".gdbearlyinit", anywhere=True),
    ObeyedName(".lldbinit", f"lldb {_STARTS}", anywhere=True),
    # Editors.
    *_all(f"vim {_STARTS}", ".vimrc", ".exrc", "_vimrc", ".gvimrc", ".vim", anywhere=True),
    *_all(f"neovim {_STARTS}", ".nvim.lua", ".nvimrc", anywhere=True),
    ObeyedName(".config/nvim", "neovim executes it"),
    ObeyedName(".dir-locals.el", "Emacs evaluates it", anywhere=True),
    ObeyedName(".dir-locals-2.el", "Emacs evaluates it", anywhere=True),
    ObeyedName(".emacs", "Emacs executes it"),
    ObeyedName(".emacs.d", "Emacs executes it"),
    *_all(_EDITOR, ".vscode", ".idea", ".vs", ".zed", ".fleet", ".helix", ".nova", anywhere=True),
    *_all("the editor runs its commands", ".devcontainer", ".devcontainer.json", anywhere=True),
    *_all("the editor runs its commands", ".gitpod.yml", ".idx"),
    # Coding agents.
    *_all(_AGENT_RUNS, ".claude", ".codex", ".gemini", ".qwen", ".opencode", anywhere=True),
    *_all(_AGENT_RUNS, ".kiro", ".factory", ".crush", ".openhands", ".amazonq", anywhere=True),
    *_all("coding agents start the programs that it names", ".mcp.json", anywhere=True),
    *_all(_AGENT_RUNS, "opencode.json", "opencode.jsonc", ".opencode.json", anywhere=True),
    *_all(_AGENT_RUNS, "crush.json", ".crush.json", ".aider.conf.yml", anywhere=True),
    *_all(_AGENT, ".cursor", ".cursorrules", ".windsurf", ".windsurfrules", anywhere=True),
    *_all(_AGENT, ".clinerules", ".roo", ".roorules", ".roomodes", anywhere=True),
    *_all(_AGENT, ".continue", ".continuerules", ".goosehints", ".junie", anywhere=True),
    *_all(_AGENT, ".augment", ".augment-guidelines", ".trae", ".agents", ".rules", anywhere=True),
    *_all(_AGENT, ".github/copilot-instructions.md", ".github/instructions", anywhere=True),
    *_all(_AGENT, "AGENTS.md", "AGENT.md", "AGENTS.override.md", anywhere=True),
    *_all(_AGENT, "CLAUDE.md", "CLAUDE.local.md", "GEMINI.md", "QWEN.md", anywhere=True),
    *_all(_AGENT, "CRUSH.md", "WARP.md", "replit.md", anywhere=True),
    # agentctl.
    ObeyedName("agentctl.toml", SETTINGS, anywhere=True),
)

REASONS: Final = {obeyed.name: obeyed.why for obeyed in OBEYED}
ANYWHERE: Final = frozenset(obeyed.name for obeyed in OBEYED if obeyed.anywhere)


def reason(path: str) -> str:
    """Return a short reason why programs obey the file or directory *path*, from its name."""
    parts = path.split("/")
    for start in range(len(parts)):
        if why := REASONS.get("/".join(parts[start:])):
            return why
    if parts[-1] in OF_A_REPOSITORY:  # in a repository directory with any name
        return REASONS[f".git/{parts[-1]}"]
    return SETTINGS
