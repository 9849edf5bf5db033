"""The history: what the store recorded, read with Spark, and sent again.

Importing this package loads neither Spark nor Arrow; the functions do when they are called.
"""

from typing import TYPE_CHECKING, Any

from hms.history.archive import ArchiveReport, archive
from hms.history.archive_read import archived_until, end_offset, first_offset, read
from hms.history.census import Census, preview
from hms.history.java import ensure_java
from hms.history.minutes import Alert, Minute, minutes
from hms.history.replay import ReplayReport, replay
from hms.history.report import EventCount, count_events
from hms.history.reports.every import make_report
from hms.history.reports.table import Curve, Report
from hms.history.spark import register, session
from hms.history.watch import Watched, watch

if TYPE_CHECKING:
    from hms.history.source import HmsDataSource

__all__ = [
    "Alert",
    "ArchiveReport",
    "Census",
    "Curve",
    "EventCount",
    "HmsDataSource",
    "Minute",
    "ReplayReport",
    "Report",
    "Watched",
    "archive",
    "archived_until",
    "count_events",
    "end_offset",
    "ensure_java",
    "first_offset",
    "make_report",
    "minutes",
    "preview",
    "read",
    "register",
    "replay",
    "session",
    "watch",
]


def __getattr__(name: str) -> Any:
    """HmsDataSource is made when it is first asked for, because it needs pyspark."""
    if name == "HmsDataSource":
        from hms.history.source import HmsDataSource  # noqa: PLC0415 - loads pyspark

        return HmsDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
