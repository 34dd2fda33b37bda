"""Write hooks where ``.git`` was a symlink to the outside before: nothing is made out there."""

from attempt import FACTS, attempt


def write(path: str) -> None:
    with open(f"{FACTS['workspace']}/{path}", "w") as file:
        file.write("was here\n")


attempt(
    {
        "hooks": lambda: write(".git/hooks/pre-commit"),
        "config": lambda: write(".git/config"),
        "rc file": lambda: write(".bashrc"),
    }
)
