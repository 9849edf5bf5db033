"""Every report, by the name that hms history report knows."""

from typing import TYPE_CHECKING

from hms.errors.catalogue import HistoryError
from hms.history.faults import as_own
from hms.history.replay import check, source_name, wanted_options
from hms.history.reports.audit import audit
from hms.history.reports.ends import dead_letters, expiry
from hms.history.reports.flow import backlog, throughput
from hms.history.reports.latency import latency
from hms.history.reports.table import Asked, Report
from hms.history.scan import PathName
from hms.history.spark import borrowed_session
from hms.history.wanted import When

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["REPORTS", "make_report"]

REPORTS = {
    "throughput": throughput,
    "latency": latency,
    "backlog": backlog,
    "dead-letters": dead_letters,
    "expiry": expiry,
    "audit": audit,
}


def make_report(
    spark: "SparkSession | None",
    path: PathName,
    name: str,
    *,
    destination: str = "",
    from_: When = None,
    to: When = None,
    address: str | None = None,
    master: str | None = None,
) -> Report:
    """A report over the history of a store or archive, by its name in REPORTS. HistoryError.

    spark: None makes a session on `master`. destination: a comma list, with * for any characters;
    address: of audit, the node that must have what waits.
    """
    if name not in REPORTS:
        raise HistoryError(detail=f"there is no report {name!r}; known are {', '.join(REPORTS)}")
    check(source_name(path), wanted_options(destination, from_, to, ""))
    with borrowed_session(spark, "hms-report", master) as session, as_own():
        return REPORTS[name](Asked(session, path, destination, from_, to, address))
