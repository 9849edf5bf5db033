"""Metrics as text: what a node answers to metrics.show, in the form that Prometheus reads.

Base units, `_total` for counters, one quantity a name. No message id, client id, user, address or
free text is ever a label: their number has no bound.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

__all__ = [
    "CONTENT_TYPE",
    "OPENMETRICS_TYPE",
    "SERIES_OF_A_PLACE",
    "down_text",
    "exposition",
    "standby_text",
]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
Labels = Mapping[str, str] | str
"""By name; or as they are written, for those that thousands of lines share."""
Sample = tuple[str, Labels, float]
"""Suffix, labels, value."""
Family = tuple[str, str, str, list[Sample]]
"""Name without _total, type, help, samples."""

_COUNTED = {
    "sent": ("messages_received", "Messages that came to queues and subscriptions."),
    "delivered": ("messages_delivered", "Deliveries to consumers."),
    "acknowledged": ("messages_acknowledged", "Messages that consumers acknowledged."),
    "redelivered": ("messages_redelivered", "Deliveries of messages that had been out before."),
    "expired": ("messages_expired", "Messages whose time was over."),
    "dead_lettered": ("messages_dead_lettered", "Messages that became dead letters."),
    "moved_in": ("messages_moved_in", "Messages that operators or other nodes moved here."),
    "moved_out": ("messages_moved_out", "Messages that operators or other nodes moved away."),
    "returned": ("messages_returned", "Dead letters that came back to where they had failed."),
}
_REMOVED = ("purged", "removed")
NO_LABELS: Mapping[str, str] = {}
_PLACES = {
    "messages": ("destination_messages", 1, "Messages that wait."),
    "in_flight": ("destination_in_flight", 1, "Messages that consumers have not settled."),
    "delayed": ("destination_delayed", 1, "Messages that wait for their time."),
    "bytes": ("destination_bytes", 1, "Bytes of what is there."),
    "consumers": ("destination_consumers", 1, "Consumers."),
    "producers": ("destination_producers", 1, "Producers."),
    "blocked_sends": ("destination_blocked_sends", 1, "Sends that wait for room."),
}
STATES = ("starting", "recovering", "ready", "draining", "failed", "down")
"""Of a node, but "standby": the process that stands by tells that itself."""
SERIES_OF_A_PLACE = len(_PLACES) + len(_COUNTED) + 3
"""And its age, when it delivered last, and whether it is paused."""


def exposition(
    said: Mapping[str, Any],
    *,
    series_max: int,
    is_open: bool = False,
    is_of_places: bool = False,
) -> str:
    """The text. series_max: so many series at most; is_open: as OpenMetrics; is_of_places: of
    destinations alone, so that nothing is counted twice where both are scraped."""
    node = {"node": said["node"]}
    lines: list[str] = []
    left = series_max - 1  # the last one tells whether some are missing
    is_cut = bool(said["left_out"])
    for family in _destination_families(said) if is_of_places else _families(said):
        name, kind, text, samples = family
        if not samples:
            continue
        if len(samples) > left:
            # A part of a histogram is none; of others the first are shown.
            is_cut, samples = True, [] if kind == "histogram" else samples[:left]
        left -= len(samples)
        if samples:
            lines += _written(name, kind, text, samples, node, is_open=is_open)
    cut: list[Sample] = [("", {}, float(is_cut))]
    help_text = "1 when series were left out."
    lines += _written("hms_metrics_truncated", "gauge", help_text, cut, node, is_open=is_open)
    return "\n".join([*lines, *(["# EOF"] if is_open else []), ""])


def down_text(node: str, state: str, *, is_open: bool = False) -> str:
    """Of a node that does not answer; state: as its state file has it."""
    up = _gauge("up", "1 when the node answers.", 0)
    families = up, _state_family(state)
    lines = [line for one in families for line in _written(*one, {"node": node}, is_open=is_open)]
    return "\n".join([*lines, *(["# EOF"] if is_open else []), ""])


def standby_text(
    said: Mapping[str, Any], *, is_open: bool = False, is_of_places: bool = False
) -> str:
    """Of a machine whose process stands by, as figures_of() has it: nothing of what the node does,
    which the one that leads tells, so that nothing is counted twice."""
    labels = {"node": said["node"]} | ({"replica": said["replica"]} if said["replica"] else {})
    families = [] if is_of_places else list(_standby_families(said))
    lines = [line for one in families for line in _written(*one, labels, is_open=is_open)]
    return "\n".join([*lines, *(["# EOF"] if is_open else []), ""])


def _state_family(state: str) -> Family:
    """One series for each state, so that a rule may compare with 0."""
    state = "down" if state == "stopped" else state
    names = (state,) if state == "standby" else STATES
    found: list[Sample] = [("", {"state": one}, float(one == state)) for one in names]
    return "hms_node_state", "gauge", "1 for the state that the process is in.", found


def _standby_families(said: Mapping[str, Any]) -> Iterator[Family]:
    yield _state_family("standby")
    info = {"version": said["version"], "store": said["store"]}
    yield "hms_build_info", "gauge", "What runs.", [("", info, 1.0)]
    for part, counters, gauges in (
        ("process", _PROCESS_COUNTERS, _PROCESS),
        ("disk", {}, _DISK),
        ("copy", _COPY_COUNTERS, _COPY),
    ):
        found = said.get(part, {})
        for key, (name, text) in gauges.items():
            if found.get(key) is not None:
                yield _gauge(name, text, float(found[key]))
        for key, (name, text) in counters.items():
            if key in found:
                yield _counter(name, text, found[key])


_PROCESS_COUNTERS = {"cpu_s": ("process_cpu_seconds", "Processor time of this process.")}
_PROCESS = {
    "start_s": ("process_start_time_seconds", "When this process was started."),
    "resident_bytes": ("process_resident_memory_bytes", "Memory of this process."),
    "descriptors": ("process_open_fds", "Descriptors that this process has open."),
}
_DISK = {
    "log_bytes": ("store_bytes", "What the log takes on the disk."),
    "pinned_bytes": ("store_pinned_bytes", "What segments take in which messages wait for long."),
    "segments": ("segments", "Segments of the log."),
    "history_bytes": ("history_bytes", "What the history takes on the disk."),
    "free_bytes": ("store_free_bytes", "What is left of the store's disk."),
    "total_bytes": ("store_disk_bytes", "The size of the store's disk."),
}
_COPY = {
    "epoch": ("replica_epoch", "The highest epoch that this copy has promised."),
    "is_in_sync": ("replica_follows", "1 while this copy had all when it was told so last."),
    "silent_s": ("replica_silence_seconds", "Since the primary said something last."),
    "confirmed_segment": ("replica_confirmed_segment", "Where the confirmed log ends: segment."),
    "confirmed_offset": ("replica_confirmed_offset_bytes", "And the offset in it."),
    "applied_lsn": ("replica_applied_lsn", "The last record that a hot standby has applied."),
    "damaged": ("replica_damaged_segments", "Segments of this copy that are damaged."),
}
_COPY_COUNTERS = {"refused": ("replica_refused_frames", "Frames of primaries that were refused.")}


def _families(said: Mapping[str, Any]) -> Iterator[Family]:
    yield _gauge("up", "1 when the node answers.", 1)
    if "state" in said:
        yield _state_family(said["state"])
    info = {"version": said["version"], "store": str(said.get("store", {}).get("kind", ""))}
    info |= {name: said[name] for name in ("python", "libzmq") if name in said}
    yield "hms_build_info", "gauge", "What runs.", [("", info, 1.0)]
    if "booted_ms" in said:
        yield _gauge("start_time_seconds", "When the node was booted.", said["booted_ms"] / 1000)
        taken = said["recovery_s"]
        yield _gauge("recovery_duration_seconds", "From its start until it was ready.", taken)
    yield from _message_families(said)
    yield from _latency_families(said)
    yield from _node_families(said)
    yield from _load_families(said)
    yield from _store_families(said)
    yield from _replica_families(said)
    yield from _service_families(said)
    yield from _link_families(said)
    yield from _destination_families(said)


def _message_families(said: Mapping[str, Any]) -> Iterator[Family]:
    both = [("true", said["durable"]), ("false", said["passing"])]
    for column, (name, text) in _COUNTED.items():
        samples: list[Sample] = [
            ("_total", {"durable": word, **labels}, count)
            for word, sums in both
            for labels, count in _counts(sums, column)
        ]
        yield f"hms_{name}", "counter", text, samples
    samples = [
        ("_total", {"durable": word, "cause": cause}, sums["counters"][cause])
        for word, sums in both
        for cause in _REMOVED
    ]
    yield "hms_messages_removed", "counter", "Messages that operators removed.", samples
    for column, text in (
        ("messages", "Messages that wait."),
        ("in_flight", "Messages that consumers have not settled."),
        ("delayed", "Messages that wait for their time."),
        ("bytes", "Bytes of what is there."),
        ("consumers", "Consumers."),
        ("places", "Queues and subscriptions."),
    ):
        found: list[Sample] = [("", {"durable": word}, sums[column]) for word, sums in both]
        yield f"hms_all_{column}", "gauge", text, found


def _counts(sums: Mapping[str, Any], column: str) -> Iterator[tuple[Mapping[str, str], int]]:
    """Of dead letters one for each reason: those add up to their number."""
    if column != "dead_lettered" or "letters" not in sums:
        yield NO_LABELS, sums["counters"].get(column, 0)
        return
    for reason, count in sums["letters"].items():
        yield {"reason": reason}, count


def _latency_families(said: Mapping[str, Any]) -> Iterator[Family]:
    """From samples, as Latencies has them."""
    for name, text in (
        ("delivery_latency", "From a message's send until it went out, of a sample."),
        ("ack_latency", "From its delivery until it was acknowledged, of the same sample."),
    ):
        found = [
            sample
            for word, times in said.get(name, ())
            for sample in _histogram("", "", times, {"durable": word})[3]
        ]
        yield f"hms_{name}_seconds", "histogram", text, found


def _node_families(said: Mapping[str, Any]) -> Iterator[Family]:
    yield _gauge("connections", "Connections of clients.", said["connections"])
    yield _gauge("sessions", "Sessions that are open.", said["sessions"])
    consumers = said["durable"]["consumers"] + said["passing"]["consumers"]
    yield _gauge("consumers", "Consumers of all queues and subscriptions.", consumers)
    yield _gauge("memory_bytes", "Memory that messages and clients take.", said["held_bytes"])
    yield _gauge("memory_limit_bytes", "max_memory_bytes.", said["max_memory_bytes"])
    yield _gauge("paged_messages", "Messages whose bodies are in the log.", said["paged_messages"])
    yield _gauge("blocked_sends", "Sends that wait for room.", said["blocked_sends"])
    yield _gauge("sends_refused", "1 while the store takes no messages.", said["sends_refused"])
    yield _gauge("branches_in_doubt", "Branches in doubt.", said["branches_in_doubt"])
    states = said["transactions"].items()
    branches: list[Sample] = [("", {"state": state}, count) for state, count in states]
    yield "hms_transactions", "gauge", "Branches of transactions that are there.", branches
    ended: list[Sample] = [
        ("_total", {"outcome": one}, n) for one, n in said.get("transaction_endings", {}).items()
    ]
    yield "hms_transaction_outcomes", "counter", "Branches that ended, since the boot.", ended
    text = "Since the oldest branch in doubt was prepared; 0 for none."
    yield _gauge("in_doubt_oldest_seconds", text, said["in_doubt_oldest_s"])
    yield _counter("lock_holds", "Holds of the engine's lock.", said["lock_holds"])
    yield _counter("lock_long_holds", "Holds over 50 ms.", said["lock_holds_over_50_ms"])
    yield _histogram("confirmation_seconds", "From applied to confirmed.", said["confirmation"])
    if "logins_refused" in said:
        logins: list[Sample] = [
            ("_total", {"result": result, "mechanism": mechanism}, count)
            for result, mechanism, count in said["logins"]
        ]
        yield "hms_logins", "counter", "Logins, by what they proved who they are with.", logins
        refused = said["connections_refused"]
        yield _counter("connections_refused", "Connections that were not let in.", refused)
        denied: list[Sample] = [
            ("_total", {"action": action}, count) for action, count in said["denied_by"].items()
        ]
        yield "hms_denied", "counter", "Commands that were not permitted.", denied
    if said.get("audit_records"):
        text = "Records of the audit since it began."
        yield _counter("audit_records", text, said["audit_records"])
    alerts: list[Sample] = [
        ("", {"alert": name, "destination": place}, 1.0) for name, place in said.get("alerts", [])
    ]
    yield "hms_alert_active", "gauge", "1 for each alert that has not ended.", alerts


def _load_families(said: Mapping[str, Any]) -> Iterator[Family]:
    """Of threads, as NodeLoad has them."""
    pools: Mapping[str, Mapping[str, float]] = said.get("pools", {})
    for key, name, text in (
        ("workers", "workers", "Workers of a pool."),
        ("busy", "worker_busy_ratio", "Share of them that was busy in the last 15 s."),
        ("waiting", "work_waiting", "What no worker of a pool has taken."),
        ("deepest", "lane_depth", "What waits in the longest queue of a pool."),
    ):
        found: list[Sample] = [("", {"pool": pool}, one[key]) for pool, one in pools.items()]
        yield f"hms_{name}", "gauge", text, found
    if (loop := said.get("main_loop")) is not None:
        yield _counter("main_loop_turns", "Turns of the main loop.", loop["turns"])
        text = "Of each second the slowest turn of the main loop."
        yield _histogram("main_loop_seconds", text, loop["slowest_s"])


def _store_families(said: Mapping[str, Any]) -> Iterator[Family]:
    yield _histogram("log_commit_seconds", "Write and sync of what waits.", said["commit"])
    if "sync" in said:
        yield _histogram("log_sync_seconds", "The sync alone, of each commit.", said["sync"])
    yield _histogram("log_batch_records", "Records in a commit.", said["batch_records"])
    yield _counter("log_records", "Records of the log.", said["last_lsn"])
    if "appended_bytes" in said:
        text = "Bytes that went to the log since the boot."
        yield _counter("log_bytes", text, said["appended_bytes"])
    if "rewritten_bytes" in said.get("store", {}):
        text = "Those of them that were written again so that old segments could go."
        yield _counter("compaction_bytes", text, said["store"]["rewritten_bytes"])
    yield _gauge("log_backlog_bytes", "Appended and not synced.", said["backlog_bytes"])
    dropped = said.get("log_lines_dropped", 0)
    yield _counter("node_log_lines_dropped", "Lines of the node's log without room.", dropped)
    store = said.get("store", {})
    for key, name, text in (
        *((key, *_DISK[key]) for key in ("log_bytes", "pinned_bytes")),
        ("live_bytes", "store_live_bytes", "What of it is still needed."),
        ("segments", "segments", "Segments of the log."),
        ("history_bytes", "history_bytes", "What the history takes on the disk."),
    ):
        if key in store:
            yield _gauge(name, text, store[key])
    if said.get("disk_bytes"):
        free, total = said["disk_free_bytes"], said["disk_bytes"]
        yield _gauge("store_free_bytes", "What is left of the store's disk.", free)
        yield _gauge("store_disk_bytes", "The size of the store's disk.", total)


def _replica_families(said: Mapping[str, Any]) -> Iterator[Family]:
    """Of a node with copies; the one that was heard last where one was replaced."""
    group = said.get("replication")
    if group is None:
        return
    yield _gauge("replica_epoch", "The epoch in which the node leads.", group["epoch"])
    survives = group["failures_survived"]
    yield _gauge("replica_failures_survived", "Copies that may be lost at this moment.", survives)
    confirmed = group["confirmed_lsn"]
    yield _gauge("replica_confirmed_lsn", "The last record that is confirmed.", confirmed)
    blocked_s = group["blocked_since_s"] or 0.0
    yield _gauge("replica_blocked_seconds", "For how long a confirmation has waited.", blocked_s)
    proofs: list[Sample] = [
        ("", {"by": one}, float(group["proof"] == one)) for one in ("arbiter", "members")
    ]
    yield "hms_replica_proof", "gauge", "1 for who says last that the node leads.", proofs
    yield from _take_over_families(group["last_take_over"])
    for key, text in (
        ("take_overs", "How often another copy led, unplanned, since the log began."),
        ("switchovers", "How often another copy led, as planned, since the log began."),
    ):
        yield _counter(f"replica_{key}", text, group[key])
    rows = {row["replica"]: row for row in sorted(group["replicas"], key=lambda r: r["is_heard"])}
    for column, name, text in (
        ("is_member", "counts", "1 for a copy that counts."),
        ("is_in_sync", "in_sync", "1 for a copy that has everything."),
        ("lag_s", "lag_seconds", "For how long a copy has lacked something."),
        ("lag_bytes", "lag_bytes", "What is on its way to a copy."),
        ("files_behind", "files_behind", "Files of messages that a copy lacks."),
        ("to_apply_bytes", "to_apply_bytes", "At most, what a hot standby has not applied."),
        ("applied_lsn", "applied_lsn", "The last record that a hot standby has applied."),
        ("clock_ahead_s", "clock_ahead_seconds", "By how much its machine's clock is ahead."),
    ):
        found: list[Sample] = [
            ("", {"replica": one}, float(row[column]))
            for one, row in rows.items()
            if row[column] is not None
        ]
        yield f"hms_replica_{name}", "gauge", text, found
    found = [
        ("", {"replica": one, "quantile": quantile}, row["sync_ms"][key] / 1000)
        for one, row in rows.items()
        if row["sync_ms"] is not None
        for quantile, key in (("0.5", "p50"), ("0.99", "p99"))
    ]
    yield "hms_replica_sync_seconds", "gauge", "From sent to synced, of the last batches.", found


def _take_over_families(last: Mapping[str, Any] | None) -> Iterator[Family]:
    """How this copy came to lead; of a boot only when."""
    if last is None or last["at_ms"] is None:
        return
    at, took_s = last["at_ms"] / 1000, last["total_s"]
    yield _gauge("replica_take_over_time_seconds", "When this copy led.", at)
    if took_s is not None:
        text = "From the last word of who led until a record was confirmed."
        yield _gauge("replica_take_over_seconds", text, took_s)


def _service_families(said: Mapping[str, Any]) -> Iterator[Family]:
    services = said["services"]
    calls: list[Sample] = []
    for one in services:
        failed, label = one["failed"], {"service": one["name"]}
        calls.append(("_total", {**label, "outcome": "failed"}, failed))
        calls.append(("_total", {**label, "outcome": "done"}, one["calls"] - failed))
    yield "hms_service_calls", "counter", "Calls that ended.", calls
    durations = [
        sample
        for name, times in said["service_durations"].items()
        for sample in _histogram("", "", times, {"service": name})[3]
    ]
    yield "hms_service_duration_seconds", "histogram", "How long a service ran.", durations
    durations = [
        sample
        for name, times in said.get("server_durations", {}).items()
        for sample in _histogram("", "", times, {"server": name})[3]
    ]
    text = "How long services ran at a server."
    yield "hms_server_duration_seconds", "histogram", text, durations
    waiting: list[Sample] = [("", {"service": s["name"]}, s["waiting"]) for s in services]
    yield "hms_service_waiting", "gauge", "Calls that wait for a server.", waiting
    servers = said["servers"]
    processes: list[Sample] = [("", {"server": s["name"]}, len(s["pids"])) for s in servers]
    yield "hms_server_processes", "gauge", "Processes of a server.", processes
    restarts: list[Sample] = [("_total", {"server": s["name"]}, s["restarts"]) for s in servers]
    yield "hms_server_restarts", "counter", "Restarts of its processes.", restarts


def _link_families(said: Mapping[str, Any]) -> Iterator[Family]:
    """Of a node of a cluster."""
    links = said.get("links", ())
    if not links:
        return
    labels = [{"peer": one["node"]} for one in links]
    every = list(zip(labels, links, strict=True))
    found: list[Sample] = [("", label, one["presence"] == "up") for label, one in every]
    yield "hms_link_up", "gauge", "1 while the other node is there.", found
    silent: list[Sample] = [
        ("", label, one["heard_s_ago"]) for label, one in every if one["heard_s_ago"] is not None
    ]
    yield "hms_link_silence_seconds", "gauge", "Since it was heard last.", silent
    found = [("", label, one["pending_bytes"]) for label, one in every]
    yield "hms_link_pending_bytes", "gauge", "What waits on the way to it.", found
    counts: list[Sample] = [
        ("_total", {**label, "direction": way}, one[f"bytes_{way}"])
        for label, one in every
        for way in ("in", "out")
    ]
    yield "hms_link_bytes", "counter", "What went over the link.", counts
    counts = [("_total", label, one["refused"]) for label, one in every]
    yield "hms_link_refused", "counter", "What it sent and was refused.", counts
    moving = [(label, one) for label, one in every if "unconfirmed" in one]
    text = "Since the oldest message was offered to it that it has not confirmed; 0 for none."
    yield "hms_link_lag_seconds", "gauge", text, [("", lab, one["lag_s"]) for lab, one in moving]
    found = [("", label, one["unconfirmed"]) for label, one in moving]
    yield "hms_link_unconfirmed", "gauge", "Messages that it has not confirmed.", found
    counts = [
        ("_total", {**label, "direction": way}, one[f"moved_{way}"])
        for label, one in moving
        for way in ("in", "out")
    ]
    yield "hms_link_moves", "counter", "Messages that were moved to or from it.", counts


def _destination_families(said: Mapping[str, Any]) -> Iterator[Family]:
    at = {name: n for n, name in enumerate(said["columns"])}
    rows: Sequence[Sequence[Any]] = said["rows"]
    labels = [
        _labels(
            {
                "node": said["node"],
                "destination": row[at["destination"]],
                "kind": row[at["kind"]],
            }
        )
        for row in rows
    ]
    every = list(zip(labels, rows, strict=True))
    for column, (name, _, text) in _PLACES.items():
        found: list[Sample] = [("", label, row[at[column]]) for label, row in every]
        yield f"hms_{name}", "gauge", text, found
    now_ms = said["now_ms"]
    ages: list[Sample] = [
        ("", label, max(0, now_ms - row[at["oldest_ms"]]) / 1000 if row[at["oldest_ms"]] else 0)
        for label, row in every
    ]
    text = "How long the oldest message has waited."
    yield "hms_destination_oldest_message_seconds", "gauge", text, ages
    last = at.get("delivered_ms")
    went: list[Sample] = [
        ("", label, row[last] / 1000) for label, row in every if last is not None and row[last]
    ]
    text = "When something was delivered last; there is none before."
    yield "hms_destination_last_delivery_timestamp_seconds", "gauge", text, went
    paused: list[Sample] = [("", label, bool(row[at["paused"]])) for label, row in every]
    yield "hms_destination_paused", "gauge", "1 while it is paused.", paused
    for column, (name, text) in _COUNTED.items():
        if column not in at:  # of a node of the release before
            continue
        counts: list[Sample] = [("_total", label, row[at[column]]) for label, row in every]
        yield f"hms_destination_{name}", "counter", text, counts


def _gauge(name: str, text: str, value: float) -> Family:
    return f"hms_{name}", "gauge", text, [("", {}, value)]


def _counter(name: str, text: str, value: float) -> Family:
    return f"hms_{name}", "counter", text, [("_total", {}, value)]


def _histogram(
    name: str, text: str, said: Mapping[str, Any], labels: Mapping[str, str] = NO_LABELS
) -> Family:
    counts = list(accumulate(said["counts"]))
    bounds = [*map(_number, said["bounds"]), "+Inf"]
    samples: list[Sample] = [
        ("_bucket", {**labels, "le": bound}, count)
        for bound, count in zip(bounds, counts, strict=True)
    ]
    return (
        f"hms_{name}",
        "histogram",
        text,
        [
            *samples,
            ("_sum", labels, said["sum"]),
            ("_count", labels, counts[-1]),
        ],
    )


def _written(
    name: str,
    kind: str,
    text: str,
    samples: list[Sample],
    node: Mapping[str, str],
    *,
    is_open: bool,
) -> list[str]:
    """Prometheus' own text names a counter with its suffix, OpenMetrics without."""
    shown = name if is_open or kind != "counter" else f"{name}_total"
    lines = [f"# HELP {shown} {text}", f"# TYPE {shown} {kind}"]
    for suffix, labels, value in samples:
        said = labels if isinstance(labels, str) else _labels({**node, **labels})
        number = value if value.__class__ is int else _number(value)
        lines.append(f"{name}{suffix}{{{said}}} {number}")
    return lines


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
