"""Change what others execute or obey (.git/hooks, .bashrc) in the workspace: refused."""

import os

from attempt import FACTS, attempt, checked, libc

os.chdir(FACTS["workspace"])
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def write(path: str, mode: str = "a") -> None:
    with open(path, mode) as file:
        file.write("was here\n")


def replaced(path: str) -> None:
    write("replacement", "w")
    os.rename("replacement", path)


def exchanged(path: str) -> None:
    write("replacement", "w")
    names = (b"replacement", path.encode())
    checked(libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE))


def linked(path: str) -> None:
    os.link(path, "alias")
    write("alias")


def recreated() -> None:
    """Move what is protected out of the way, and make it anew."""
    os.rename(".git", "moved")
    os.makedirs(".git/hooks")
    write(".git/hooks/post-checkout", "w")


attempt(
    {
        "new hook": lambda: write(".git/hooks/pre-commit", "x"),
        "old hook": lambda: write(".git/hooks/pre-push"),
        "old hook's mode": lambda: os.chmod(".git/hooks/pre-push", 0o777),
        ".git/config": lambda: write(".git/config"),
        ".git/config, replaced": lambda: replaced(".git/config"),
        ".git/config, exchanged": lambda: exchanged(".git/config"),
        ".git/config, linked": lambda: linked(".git/config"),
        ".bashrc": lambda: write(".bashrc"),
        ".bashrc, removed": lambda: os.unlink(".bashrc"),
        ".vscode/tasks.json": lambda: write(".vscode/tasks.json"),
        ".claude/settings.json": lambda: write(".claude/settings.json"),
        ".mcp.json": lambda: write(".mcp.json"),
        "hooks, renamed": lambda: os.rename(".git/hooks", ".git/hooks-moved"),
        ".git, renamed": recreated,
    }
)
