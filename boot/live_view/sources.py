"""Where looks come from: a node that is asked, or a recording."""

import json
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol

import click

from hms.errors.catalogue import NotAuthorized
from hms.errors.tree import HmsError

__all__ = ["NodeSource", "Recording", "Source", "played"]

ROWS_MAX = 800
"""Destinations of a look: 4 ms of the node's processor, and a look a second may take 5."""
_ALWAYS = {
    *("node", "now_ms", "durable", "passing", "columns", "rows", "commit", "connections"),
    *("held_bytes", "max_memory_bytes"),
}
"""What every look has, of any version."""


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


def played(path: Path) -> Generator[dict[str, Any], None, None]:
    """The looks of a file, read one by one."""
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            where = f"{path}:{number}"
            try:
                said: dict[str, Any] = json.loads(line)
            except ValueError as fault:
                raise click.ClickException(f"{where}: {fault}") from fault
            if not isinstance(said, dict) or not said.keys() >= _ALWAYS:
                raise click.ClickException(f"{where}: this is no look of hms top")
            yield said
