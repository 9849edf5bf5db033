"""Every report, by the name that hms history report knows."""

from hms.history.reports.audit import audit
from hms.history.reports.ends import dead_letters, expiry
from hms.history.reports.flow import backlog, throughput
from hms.history.reports.latency import latency

__all__ = ["REPORTS"]

REPORTS = {
    "throughput": throughput,
    "latency": latency,
    "backlog": backlog,
    "dead-letters": dead_letters,
    "expiry": expiry,
    "audit": audit,
}
