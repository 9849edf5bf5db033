"""A group of pages of the console with a module of its own, and what the console asks of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from hms.boot.web.console_sessions import ConsoleSession
from hms.boot.web.http_server import Answer, Body, Request

__all__ = ["PageGroup", "Shown", "see_other"]

Shown = tuple[str, list[Any]]
"""Title and parts of a page."""
Ask = Callable[[Request, ConsoleSession], Shown | Answer]


@dataclass(frozen=True, slots=True)
class PageGroup:
    """pages: by GET; posts: by a form with the session's token, which the console has checked;
    uploads: by a form with a file, whose token is read with it. Each by its path."""

    pages: Mapping[str, Ask]
    posts: Mapping[str, Ask] = field(default_factory=dict)
    uploads: Mapping[str, Callable[[Request, ConsoleSession, Body], Shown | Answer]] = field(
        default_factory=dict
    )


def see_other(path: str, said: str = "") -> Answer:
    """Have the browser get another page, which says what was done."""
    where = f"{path}{'&' if '?' in path else '?'}{urlencode({'said': said})}" if said else path
    return Answer(b"", status=303, headers={"Location": where})
