"""Files that a node looks at every second while it runs: whether they changed, and what comes next.

A module of its own, so that a command that reads hms.conf does not load the engine.
"""

from pathlib import Path

__all__ = ["next_key", "stamp_of"]


def next_key(file: Path) -> Path:
    """Where the key lies that comes after the one of a file."""
    return file.with_name(f"{file.name}.next")


def stamp_of(path: Path) -> tuple[int, int, int]:
    """Other when the file, or who may read it, was changed."""
    try:
        found = path.lstat()
    except OSError:
        return (0, 0, 0)
    return found.st_ino, max(found.st_mtime_ns, found.st_ctime_ns), found.st_size
