"""[alerts]: when a node tells its operators that something is wrong."""

from typing import Annotated

from msgspec import Meta

from hms.boot import kinds
from hms.boot.sections.section import YEAR_S, Entry, Section, key, reads

__all__ = ["ALERTS", "Alerts"]

Percent = Annotated[int, Meta(ge=0, le=100)]
Seconds = Annotated[float, Meta(ge=0, le=10 * YEAR_S)]
Command = Annotated[tuple[str, ...], reads(kinds.command)]
Count = Annotated[int, Meta(ge=0, le=1 << 40)]


class Alerts(Entry, frozen=True, kw_only=True):
    """When something is an alert: in hms status, in hms health, in the log and in the metrics."""

    stuck_queue_s: Seconds = 300
    """A place with messages and consumers where nothing was acknowledged for so long."""
    unconsumed_queue_s: Seconds = 3600
    """A queue whose oldest message has waited so long, and nobody receives."""
    abandoned_subscription_s: Seconds = 86_400
    """The same of a durable subscription."""
    stalled_consumer_s: Seconds = 300
    """A consumer that has not settled its first message in flight for so long."""
    producers_blocked_s: Seconds = 10
    """Sends have waited for room for so long."""
    store_low_percent: Percent = 10
    """Less than this share of the store's disk is left."""
    memory_high_percent: Percent = 90
    """More than this share of max_memory_bytes is taken."""
    process_memory_high_percent: Percent = 90
    """More than this share of the memory that its container or unit may have is the node's."""
    descriptors_high_percent: Percent = 80
    """More than this share of the descriptors that the process may have is open."""
    dead_letters_per_minute: Count = 10
    """More dead letters than this came in a minute."""
    redelivered_percent: Percent = 20
    """More than this share of the deliveries of a minute, at least 50, were redeliveries."""
    slow_sync_ms: Count = 50
    """One of a hundred syncs of the log takes longer."""
    in_doubt_s: Seconds = 20
    """Branches of transactions have been in doubt for so long."""
    resource_down_s: Seconds = 60
    """A resource manager cannot be reached for so long."""
    peer_down_s: Seconds = 10
    """Another node of the cluster cannot be reached for so long."""
    clock_step_s: Seconds = 1
    """The clock of the machine moved by itself further than this; it is shown for ten minutes."""
    clock_differs_s: Seconds = 1
    """The clock of another node of the cluster, or of another replica's machine, is further ahead,
    or behind."""
    backup_overdue_s: Seconds = 93_600
    """No backup was begun for so long, since the boot or the last one. 0: none is expected. With
    `hms backup ship` a few minutes."""
    login_failures_per_minute: Count = 10
    """More logins than this were refused in a minute."""
    denials_per_minute: Count = 60
    """More commands than this were not permitted in a minute."""
    slow_main_loop_ms: Count = 100
    """A turn of the thread that has all sockets took longer; it is shown for a minute."""
    log_not_compacting_s: Seconds = 600
    """The log is larger than it should be and grows, and its oldest segment stays for so long."""
    certificate_expiring_days: Count = 14
    """A certificate of [arbiter] or of an authenticator ends within so many days."""
    policy_differs_s: Seconds = 60
    """Another node of the cluster has held another policy for so long."""
    replica_unprotected_s: Seconds = 10
    """For so long no copy of the log could be lost without an operator, as too few are in sync."""
    replica_behind_s: Seconds = 10
    """A copy has lacked a part of the log for so long."""
    replica_blocked_s: Seconds = 1
    """A confirmation has waited for copies that do not come for so long, once it is known."""
    arbiter_down_s: Seconds = 10
    """The arbiter has not answered for so long: no copy could take over."""
    ship_lag_s: Seconds = 300
    """`hms backup ship` has shipped something since the boot, and nothing for so long. 0: never."""
    server_down_s: Seconds = 10
    """A process of a [server.NAME] has not served for so long: it ends again, or was given up."""
    listener_missing_s: Seconds = 10
    """Nobody has offered the service of a listener for so long."""
    command: Annotated[
        Command | None, key(otherwise="none: nobody is told", example=["/usr/local/bin/page"])
    ] = None
    """Run when an alert begins or ends: it gets begins or ends, node, alert, destination, text."""


ALERTS = Section(("alerts",), Alerts, "[alerts]")
