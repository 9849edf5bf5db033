"""Names of events: what a script looks for in a log, whatever the text says.

A line is known by its logger and its text before arguments are put in; a line that says its event
itself (`extra`) is not in the table. docs/reference/log-events.md is made from it and from the
calls in the source, and a test holds that each line has a name.
"""

import functools
import logging
import re

__all__ = ["EVENTS", "event_of", "event_of_text"]

EVENTS = {
    "hms.alerts": {
        "alert %s begins%s: %s": "alert_begins",
        "alert %s ends%s after %d s": "alert_ends",
        "the level of %s is %s": "log_level_changed",
        "the level of %s is as configured again": "log_level_restored",
        "payloads at which services fail are %s": "log_payloads_changed",
        "payloads at which services fail are %s again": "log_payloads_restored",
    },
    "hms.client": {
        "%s": "listener_interrupted",
        "a callback of the application failed": "callback_failed",
        "a callback of the application wanted its thread to end": "callback_interrupted",
        "no further token: %s": "token_missing",
        "the client failed inside": "client_failed",
        "the listener of %s failed; the message comes again": "listener_failed",
        "the listener of %s: %s: %s": "listener_refused",
        "the program ends, and the node at %s has not confirmed all that it was sent; "
        "close() waits for that": "sends_unconfirmed",
        "what a listener closed did not close cleanly": "close_failed",
    },
    "hms.gateway": {
        "accept() is not guarded: a crowd at a local socket may end the node": "accept_unguarded",
    },
    "hms.letters": {
        "%s": "handler_failed",
        "%s: %d rules": "handler_started",
        "%s: line %d %s %s": "letter_handled",
        "%s: line %d %s failed: %s": "rule_failed",
    },
    "hms.links": {
        "link to %s is cut: %s": "link_cut",
        "node %s is failed: %s": "peer_failed",
        "node %s is going to show the key %s": "peer_key_announced",
        "node %s is up, life %d.%d": "peer_up",
        "node %s refuses this one: %s": "peer_refuses",
        "node %s said what cannot be applied: %s": "peer_word_unusable",
        "refused on a link: %s": "link_refused",
        "the key of the links stays: %s": "link_key_unreadable",
        "the links show the key %s from now on": "link_key_changed",
    },
    "hms.log": {
        "%d lines were not written: %s": "lines_dropped",
    },
    "hms.node": {
        "%d connections are taken, not %d: the limit of descriptors is too low": (
            "descriptors_short"
        ),
        "%d files that messages name are not there: %s": "files_missing",
        "%s has up to %s of the log to apply first": "switchover_waits",
        "%s is preferred and has everything: it is to lead again": "failback_begins",
        "%s is to lead": "switchover_done",
        "%s is to lead: what was begun has %g s to end": "switchover_drains",
        "%s: %s": "replicas_changed",
        "all goes on here: %s": "switchover_failed",
        "connection %s is lost: %s": "connection_lost",
        "draining": "node_draining",
        "it does not lead again yet: %s": "failback_refused",
        "it is tried again in %g s": "failback_failed",
        "log_level stays as it is: %s": "log_level_unreadable",
        "no progress for %g s: %s": "node_hung",
        "nobody receives what waits for the durable subscription %s": "subscription_abandoned",
        "%s": "boot_failed",
        "node %s begins anew, and stands by": "node_begins_anew",
        "node %s is ready": "node_ready",
        "node %s listens at %s": "node_listens",
        "not all servers offer their services after %g s": "servers_late",
        "recovered %d messages from %d records": "node_recovered",
        "recovering: %d of %d MiB": "node_recovering",
        "rotated files of the log are not compressed yet: %s": "log_compression_failed",
        "the COLD boot deleted %d messages": "cold_boot_deleted",
        "the bans cannot be written: %s": "bans_unwritable",
        "the bans in %s cannot be read: %s": "bans_unreadable",
        "the log begins anew": "log_begun",
        "the log is not opened anew: %s": "log_open_failed",
        "the log is not rotated: %s": "log_rotation_failed",
        "the next key of node %s is not noted for a boot: %s": "peer_key_unwritable",
        "the node stops: %s": "node_failed",
        "this replica cannot lead: %s": "replica_damaged",
        "the process was told to stop before the node was ready: it ends": "boot_ended",
        "the state file cannot be written: %s": "state_unwritable",
    },
    "hms.recovery": {
        "%s: %d left-over branches committed, %d rolled back": "branches_recovered",
        "recovery cannot report: %s": "recovery_report_failed",
        "recovery of %s failed": "recovery_failed",
        "resource manager %s is down: %s": "resource_manager_down",
        "resource manager %s is reached": "resource_manager_up",
    },
    "hms.refusals": {
        "%s": "refused",
    },
    "hms.replicas": {
        "%d records of the log are applied already": "copy_applied",
        "%s": "arbiter_away",
        "%s does not lead in epoch %d: %s": "lead_refused",
        "%s does not lead: %s": "lead_failed",
        "%s has the whole log": "copy_in_sync",
        "%s is not read through: %s": "copy_unreadable",
        "%s is removed, the oldest that was set aside": "aside_removed",
        "%s joins, %d segments to get": "copy_joins",
        "%s leads %s from epoch %d on": "lead_begins",
        "%s sends on what %s says there: %s": "order_sent_on",
        "%s, which was to lead, is gone: any copy may lead": "successor_gone",
        "a crash is noticed by the end of the lease only: %s": "guard_missing",
        "a frame of a copy is refused: %s": "copy_frame_refused",
        "a frame of the primary is refused: %s": "primary_frame_refused",
        "clients are not told who leads: %s": "standby_door_failed",
        "copies that count: %s; %d confirm": "members_changed",
        "epoch %d was promised by %s": "epoch_promised",
        "members stay as they are: %s": "members_unchanged",
        "no segment is prepared: %s": "segment_unprepared",
        "nothing is confirmed: %s waits for %s": "confirmations_blocked",
        "records that nobody adopted are set aside: %s": "records_aside",
        "replicas that were added are not known: %s": "members_unknown",
        "segment %d is damaged at offset %d: %s": "segment_damaged",
        "segment %d is damaged at the primary, too": "segment_damaged_at_primary",
        "segment %d is repaired": "segment_repaired",
        "the arbiter answers again": "arbiter_back",
        "the lease ends by itself: %s": "lease_left",
        "the lease is not given back: %s": "lease_kept",
        "the lease is not renewed: %s": "lease_not_renewed",
        "the link of the copies ends": "copy_link_failed",
        "the process %d of %s has ended: its lease does": "lease_ended",
        "what is lost behind segment %d is accepted by an operator": "loss_accepted",
        "what this copy had applied of the log is given up: %s": "copy_applied_anew",
    },
    "hms.security": {
        "%s is too large to be told to other nodes": "policy_too_large",
        "a connection from %s%s is refused: %s": "connection_refused",
        "a login could not be checked": "login_check_failed",
        "authenticator %s cannot be used: %s": "authenticator_unusable",
        "authenticator %s does not answer: %s": "authenticator_away",
        "authenticator %s has failed": "authenticator_failed",
        "authenticator %s: user %s has other roles now": "roles_changed",
        "hashes of passwords that cost too little are not renewed: %s": "hashes_not_renewed",
        "ipc_group: ipc_mode %s lets no group in, 0660 does": "ipc_group_shut_out",
        "listener %s lets in clients with any key, as far as the login": "listener_any_key",
        "listener %s shows the key %s from now on": "listener_key_changed",
        "login of %r from %s is refused: %s": "login_refused",
        "not taken over, what held before holds: %s": "policy_rejected",
        "other processes of this user may look into the memory of the node": "memory_readable",
        "policy version %d comes from another node": "policy_received",
        "policy version %d holds; %d connections, consumers and services were closed": (
            "policy_changed"
        ),
        "policy version %d of another node is not taken: %s": "policy_refused",
        "schedule %r is not sent: %s": "schedule_denied",
        "the audit is not verified: %s": "audit_unverified",
        "the key of listener %s stays: %s": "listener_key_unreadable",
        "the keys of %s stay: %s": "token_keys_unreadable",
        "the keys of resume tokens stay as they are: %s": "resume_keys_unwritable",
        "user %s is let in by %s from %s": "login_accepted",
        "user %s: its token's key is none of authenticator %s any more": "token_key_gone",
    },
    "hms.servers": {
        "process %d does not end; it is killed": "server_killed",
        "process %s is ended: its service ran past its limit": "service_overran",
        "server %s ends a process that is not needed": "server_shrinks",
        "server %s gets one more process: %d calls wait": "server_grows",
        "server %s is not restarted: %s": "server_restart_failed",
        "server %s runs as process %d": "server_started",
        "server %s: %s": "server_given_up",
        "server %s: %s; another is started": "server_ended",
        "the end of server %s could not be told": "server_end_untold",
    },
    "hms.spool": {
        "%s": "file_refused",
        "the file %s stopped to come and is given up": "file_given_up",
    },
    "hms.standby": {
        "node %s stands by, waits for %s: %s": "node_stands_by",
        "the owner of %s has been silent for %g s": "owner_silent",
    },
    "hms.store": {
        "%s stays: its audit cannot be written elsewhere: %s": "audit_not_kept",
        "new persistent messages are refused: %s": "store_full",
        "new persistent messages are taken again: there is room": "store_has_room",
        "space is scarce: the history's oldest segments are removed": "history_shortened",
        "the audit of a segment that goes cannot be read: %s": "audit_unreadable",
        "the audit of segment %d is older than audit_keep_s and goes": "audit_removed",
    },
    "hms.store.database": {
        "%s answers again after %.1f s": "database_back",
        "%s does not answer, trying for %g s: %s": "database_away",
    },
    "hms.web": {
        "%s %s": "request_failed",
    },
    "tpmon.server": {
        "%s": "server_connection_failed",
        "service %s failed": "service_failed",
        "service %s was given: %s": "service_input",
        "service %s: %s": "service_not_committed",
        "service %s: %s: %s": "service_refused",
        "serving %s": "services_offered",
        "the node is gone and a call has gone on for %g s since": "call_orphaned",
        "the result of %s is dropped: its connection is lost": "result_dropped",
        "tpsvrdone() of %s failed": "tpsvrdone_failed",
    },
}
"""By logger, by text."""
_PROCESSES = ("tpmon.server", "hms.client", "hms.letters", "hms.recovery")
"""Loggers of processes that a node starts: for people, a line has the process instead."""

_PLACE = re.compile(r"%(?:[-+#0 ]*\d*(?:\.\d+)?)[sdrgfx]")


def event_of(record: logging.LogRecord) -> str:
    """The name of a line's event; the logger's, where none of ours wrote it."""
    said = getattr(record, "event", None)
    if said is not None:
        return str(said)
    return EVENTS.get(record.name, {}).get(str(record.msg), record.name)


def event_of_text(logger: str, text: str) -> str:
    """The same of a line that is text already, as people read it; "": it says none."""
    loggers = (logger,) if not logger.endswith("]") else _PROCESSES
    known = (event for one in loggers for form, event in _forms(one) if form.fullmatch(text))
    return next(known, "")


@functools.cache
def _forms(logger: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    """Those with the most words of their own first: "%s" is what is nothing else."""
    texts = sorted(EVENTS.get(logger, {}).items(), key=lambda one: -len(_PLACE.sub("", one[0])))
    return tuple((_form(text), event) for text, event in texts)


def _form(text: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, _PLACE.split(text))), re.DOTALL)
