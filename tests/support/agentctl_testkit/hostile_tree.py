"""Directories as a hostile program leaves them."""

import os
from pathlib import Path


def nest(directory: Path, levels: int) -> None:
    """Make that many directories in *directory*, each in the one before."""
    at = os.open(directory, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
