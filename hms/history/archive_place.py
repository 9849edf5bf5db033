"""Where an archive lies: a directory, or a place that only Hadoop knows (archive_hadoop)."""

import os
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from hms.errors.catalogue import ArchiveError

__all__ = ["ArchivePlace", "FileTakenError", "LocalPlace", "is_url", "local_place", "sync"]


class FileTakenError(Exception):
    """A file that was to be created is there."""


class ArchivePlace(Protocol):
    """Files by names relative to the place; folders in names are separated by slashes."""

    @property
    def where(self) -> str:
        """What the operator called it."""

    def url(self, name: str) -> str:
        """What Spark calls a file or folder."""

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none when it is not there."""

    def files(self, folder: str) -> dict[str, int]:
        """All files below a folder, by name, with their sizes."""

    def read(self, name: str) -> bytes:
        """A whole file. FileNotFoundError."""

    def create(self, name: str, data: bytes) -> None:
        """A file that is there as a whole or not at all, and safe. FileTakenError."""

    def move(self, source: str, target: str) -> None:
        """Give a file another name, in a folder that is made if need be."""

    def sync(self, names: Sequence[str]) -> None:
        """Return when these files are safe, with their names."""

    def remove(self, name: str) -> None:
        """Remove a file or a whole folder; nothing when it is not there."""


def is_url(where: str) -> bool:
    """Whether it is a URL rather than a path."""
    return "://" in where or where.startswith("file:/")


def local_place(where: str) -> "LocalPlace":
    """A directory by its path or file: URL. ArchiveError for other URLs."""
    if not is_url(where):
        return LocalPlace(where, Path(where).absolute())
    parts = urlsplit(where)
    if parts.scheme != "file":
        detail = 'only hms.history.read() reads it there, not the format "hms"; '
        detail += 'or leave the archive aside with the option archive = "none"'
        raise ArchiveError(where=where, detail=detail)
    return LocalPlace(where, Path(unquote(parts.path)))


class LocalPlace:
    """A directory."""

    def __init__(self, where: str, root: Path) -> None:
        self.where = where
        self._root = root

    def path(self, name: str) -> Path:
        """Where a file lies."""
        return self._root / name

    def url(self, name: str) -> str:
        """What Spark calls a file or folder."""
        return f"file://{self.path(name)}"  # as Hadoop wants it: nothing in it is encoded

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none when it is not there."""
        try:
            return os.listdir(self._root / folder)  # noqa: PTH208 - names are wanted
        except (FileNotFoundError, NotADirectoryError):
            return []

    def files(self, folder: str) -> dict[str, int]:
        """All files below a folder, by name, with their sizes."""
        found = [file for file in (self._root / folder).rglob("*") if file.is_file()]
        return {file.relative_to(self._root).as_posix(): file.stat().st_size for file in found}

    def read(self, name: str) -> bytes:
        """A whole file. FileNotFoundError."""
        return (self._root / name).read_bytes()

    def create(self, name: str, data: bytes) -> None:
        """A file that is there as a whole or not at all, and safe. FileTakenError."""
        target = self._root / name
        _make(target.parent)
        draft = target.with_name(f".{uuid.uuid4().hex}.tmp")
        try:
            draft.write_bytes(data)
            sync(draft)
            os.link(draft, target)  # refuses a name that is taken, unlike a rename
        except FileExistsError as fault:
            raise FileTakenError(name) from fault
        finally:
            draft.unlink(missing_ok=True)
        sync(target.parent)

    def move(self, source: str, target: str) -> None:
        """Give a file another name, in a folder that is made if need be."""
        _make((self._root / target).parent)
        (self._root / source).rename(self._root / target)

    def sync(self, names: Sequence[str]) -> None:
        """Return when these files are safe, with their names."""
        files = [self._root / name for name in names]
        for file in [*files, *dict.fromkeys(file.parent for file in files)]:
            sync(file)

    def remove(self, name: str) -> None:
        """Remove a file or a whole folder; nothing when it is not there."""
        target = self._root / name
        with suppress(FileNotFoundError):
            if not target.is_dir():
                target.unlink()
                return
            for file in target.iterdir():
                self.remove(file.relative_to(self._root).as_posix())
            target.rmdir()


def _make(folder: Path) -> None:
    """A folder and those above it, whose names are safe too."""
    if folder.is_dir():
        return
    _make(folder.parent)
    folder.mkdir(exist_ok=True)
    sync(folder.parent)


def sync(path: Path) -> None:
    """Return when a file, or the names in a folder, are safe."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
