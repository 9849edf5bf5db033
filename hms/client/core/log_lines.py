"""Lines of a log: for people, or as JSON with their fields by name.

Names that strangers choose stand in them, so no line holds a control character or a line break of
theirs. No payload and no value of a property is logged, but by a service that fails where
`log_payloads` lets (tpmon/failed_input.py).
"""

import json
import logging
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from hms.client.core.log_events import event_of
from hms.client.core.log_output import ERRORS_FD, PAYLOADS_VARIABLE, LogOutput

__all__ = [
    "FORMAT_VARIABLE",
    "JOURNAL_TEXT",
    "PAYLOADS_VARIABLE",
    "JsonLines",
    "TextLines",
    "form_of",
    "is_journal",
    "make_formatter",
    "start_log",
]

FORMAT_VARIABLE = "HMS_LOG_FORMAT"
"""TEXT or JSON, for processes that the node starts."""
FIELDS = (
    *("connection", "client_id", "user", "request", "destination", "message_id", "error"),
    *("audit", "trace_id", "alert", "kind", "service"),
)
TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
JOURNAL_TEXT = "%(levelname)s %(name)s: %(message)s"
"""The journal of systemd has the time of each line."""


def form_of(
    configured: str, environment: Mapping[str, str] = os.environ, fd: int = ERRORS_FD
) -> str:
    """TEXT or JSON. Where neither is configured, lines are for people at a terminal and in the
    journal, which has level and time of each itself, and JSON elsewhere."""
    if configured:
        return configured.upper()
    return "TEXT" if os.isatty(fd) or is_journal(fd, environment) else "JSON"


def make_formatter(
    form: str,
    about: Mapping[str, Any],
    environment: Mapping[str, str] = os.environ,
    fd: int = ERRORS_FD,
) -> logging.Formatter:
    """form: TEXT or JSON; about: what every JSON line has; fd: where the lines go."""
    if form == "JSON":
        return JsonLines(about)
    return TextLines(JOURNAL_TEXT if is_journal(fd, environment) else TEXT)


def is_journal(fd: int, environment: Mapping[str, str]) -> bool:
    """Whether lines go to the journal of systemd: all that descends from a unit has the variable,
    wherever it writes."""
    journal = environment.get("JOURNAL_STREAM")
    if not journal:
        return False
    try:
        stream = os.fstat(fd)
    except OSError:
        return False
    return journal == f"{stream.st_dev}:{stream.st_ino}"


def start_log(what: str, name: str) -> None:
    """Of a process that the node started; into what it has as standard error."""
    handler = LogOutput()
    if os.environ.get(FORMAT_VARIABLE) == "JSON":
        handler.setFormatter(JsonLines({what: name, "pid": os.getpid()}))
    else:
        who = f"{what} {name}".strip().replace("%", "%%")
        at = "" if is_journal(ERRORS_FD, os.environ) else "%(asctime)s "
        handler.setFormatter(TextLines(f"{at}%(levelname)s {who} [%(process)d]: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


class TextLines(logging.Formatter):
    """A line for people; a traceback follows on lines of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base names it
        """Without what would move the cursor of a terminal, or look like another line."""
        record.message = escaped(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the base names it
        """An error's text may be a stranger's too."""
        return escaped(super().formatException(ei))


class JsonLines(logging.Formatter):
    """An object on each line: ts, level, event, logger, text, then fields."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        super().__init__()
        self._about = dict(about)

    def format(self, record: logging.LogRecord) -> str:
        """One event."""
        at = datetime.fromtimestamp(record.created, UTC)
        said: dict[str, Any] = {
            "ts": f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z",
            "level": record.levelname,
            "event": event_of(record),
            "logger": record.name,
            "text": record.getMessage(),
            **self._about,
        }
        for name in FIELDS:
            value = getattr(record, name, None)
            if value is not None and value != "":
                said[name] = value
        if record.exc_info and record.exc_info[1] is not None:
            said.setdefault("error", type(record.exc_info[1]).__name__)
            said["traceback"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=True, default=str)


def escaped(text: str) -> str:
    """Line feeds of our own texts stay, as spaces at the next line's begin; others are shown."""
    lines = text.split("\n")
    return "\n  ".join(line if line.isprintable() else "".join(map(_shown, line)) for line in lines)


def _shown(char: str) -> str:
    return char if char.isprintable() else char.encode("unicode_escape").decode()
