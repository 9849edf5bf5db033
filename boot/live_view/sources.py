"""Where looks come from: a node that is asked, or a recording."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol

import click

from hms.errors.catalogue import NotAuthorized
from hms.errors.tree import HmsError

__all__ = ["NodeSource", "Recording", "Source", "played"]

ROWS_MAX = 1000


class Source(Protocol):
    """What the view asks. Each call may wait, so it is made outside of the thread that draws."""

    is_node: bool
    """Whether somebody answers more than the figures, and takes orders."""

    def look(self, names: str) -> dict[str, Any] | None:
        """The figures of now; None: there are no more."""

    def ask(self, verb: str, **arguments: Any) -> Any:
        """The answer to an operator's command; raises HmsError."""

    def close(self) -> None:
        """Nothing is asked any more."""


class NodeSource:
    """connect: opens a connection to the node. One that is lost is opened anew by the next look."""

    is_node = True

    def __init__(self, connect: Callable[[], AbstractContextManager[Any]]) -> None:
        self._connect = connect
        self._opened = ExitStack()
        self._connection: Any = None
        self.asked = 0
        """How often the node was asked."""

    def look(self, names: str) -> dict[str, Any] | None:
        """One answer has all figures."""
        said: dict[str, Any] = self.ask("metrics.show", names=names, limit=ROWS_MAX)
        return said

    def ask(self, verb: str, **arguments: Any) -> Any:
        """An order is never repeated: what became of one whose answer was lost is not known."""
        try:
            if self._connection is None:
                self._connection = self._opened.enter_context(self._connect())
            self.asked += 1
            return self._connection.administer(verb, arguments)
        except NotAuthorized:
            raise
        except HmsError:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the connection."""
        self._connection = None
        self._opened.close()


class Recording:
    """A file that was recorded, a look each time."""

    is_node = False

    def __init__(self, path: Path) -> None:
        self._looks = played(path)

    def look(self, names: str) -> dict[str, Any] | None:
        """The next look, with the rows that names match."""
        said = next(self._looks, None)
        if said is not None:
            patterns = names.split()
            at = said["columns"].index("destination")
            said["rows"] = [
                row for row in said["rows"] if any(fnmatchcase(row[at], one) for one in patterns)
            ]
        return said

    def ask(self, verb: str, **_arguments: Any) -> Any:
        """Nobody asks: there is no node."""
        raise AssertionError(verb)

    def close(self) -> None:
        """Let go of the file."""
        self._looks.close()


def played(path: Path) -> "_Looks":
    """The looks of a file, read one by one."""
    return _Looks(path)


class _Looks(Iterator[dict[str, Any]]):
    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open(encoding="utf-8")
        self._number = 0

    def __next__(self) -> dict[str, Any]:
        line = self._file.readline()
        if not line:
            self.close()
            raise StopIteration
        self._number += 1
        try:
            said: dict[str, Any] = json.loads(line)
        except ValueError as fault:
            self.close()
            raise click.ClickException(f"{self._path}:{self._number}: {fault}") from fault
        return said

    def close(self) -> None:
        self._file.close()
