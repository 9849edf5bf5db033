"""Files that have something in them, below folders of a node that works."""

from collections.abc import Callable
from pathlib import Path

__all__ = ["files_with"]


def files_with(is_it: Callable[[bytes], object], *folders: Path) -> list[Path]:
    """Those whose bytes are such; all are read again when one was renamed or removed meanwhile."""
    while True:
        try:
            every = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
            return [file for file in every if is_it(file.read_bytes())]
        except FileNotFoundError:
            continue
