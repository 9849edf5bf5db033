"""What a load takes of a machine: formulas, with constants that were measured."""

from dataclasses import dataclass
from typing import Any

__all__ = ["Load", "estimate"]

MEMORY_PER_MESSAGE = 250
"""Bytes that the node counts for a waiting message beside its body and head."""
HEAP = 1.1
"""Bytes of the process for one that it counts."""
LIVE_PER_MESSAGE = 64
"""What live_bytes counts for one beside its body and head."""
LOG_PER_MESSAGE = 40
"""Bytes of the log for a message, its delivery and its acknowledgement, in batches."""
NETWORK_PER_MESSAGE = 84
"""Bytes of the network for a message that comes and goes, beside its body twice, in batches."""
PAGED_BYTES = 300
"""A waiting message whose body is in the log only."""
CLIENT_BYTES = 33_000
"""A connection with a session, a consumer and a producer."""
NODE_BYTES = 48 << 20
"""Idle."""
BUFFER_BYTES = 8 << 20
"""What is on its way while messages pass, of a few clients that send in batches."""
DAY_S = 86_400
DURABLE_S, PASSING_S = 9.3e-6, 4.7e-6
"""Processor time of the node for a message that comes and goes, in batches: W4 and W5."""
ALONE_S = 393e-6 + 5.2e-6
"""The same of one for whose confirmation its sender waits: W1, and what W3 adds."""
RECOVERED_S = 0.88e-6
"""Processor time of a boot for a live message, sent one by one."""
READ_BYTES_PER_S = 500 << 20
"""A disk reads so fast, unless it is told otherwise."""


@dataclass(frozen=True, slots=True)
class Load:
    """rate: messages a second; size: bytes of a body with its head; durable: the share of them that
    is persistent; backlog: messages that wait at most; retention_s: of the history; clients;
    memory_max: max_memory_bytes; disk: bytes of the disk, 0: not known."""

    rate: float
    size: int
    durable: float = 1.0
    backlog: int = 0
    retention_s: float = DAY_S
    clients: int = 10
    memory_max: int = 1 << 30
    disk: int = 0


def estimate(load: Load) -> dict[str, Any]:
    """What it takes; bytes, bytes a second, cores, and seconds."""
    per_message = load.size + MEMORY_PER_MESSAGE
    wanted, room = load.backlog * per_message, load.memory_max * 3 // 4
    in_memory = min(wanted, room)
    paged = 0 if wanted <= in_memory else load.backlog - in_memory // per_message
    logged = load.size + LOG_PER_MESSAGE
    log_per_s = load.rate * load.durable * logged
    live = load.backlog * load.durable * (load.size + LIVE_PER_MESSAGE)
    history = log_per_s * load.retention_s
    own = NODE_BYTES + BUFFER_BYTES + load.clients * CLIENT_BYTES
    batched_s = load.durable * DURABLE_S + (1 - load.durable) * PASSING_S
    disk = 2 * live + history
    return {
        "memory_bytes": round(own + in_memory * HEAP + paged * PAGED_BYTES),
        "counted_bytes": round(wanted),
        "paged_messages": round(paged),
        "log_bytes_per_s": round(log_per_s),
        "live_log_bytes": round(live),
        "history_bytes": round(history),
        "store_bytes": round(load.backlog * load.durable * logged + history),
        "disk_bytes": round(disk),
        "network_bytes_per_s": round(load.rate * (2 * load.size + NETWORK_PER_MESSAGE)),
        "cores": round(load.rate * batched_s, 3),
        "cores_alone": round(
            load.rate * (load.durable * ALONE_S + (1 - load.durable) * PASSING_S), 3
        ),
        "recovery_s": round(load.backlog * load.durable * RECOVERED_S + live / READ_BYTES_PER_S, 1),
        **_filled(load, room - wanted, per_message, log_per_s, disk),
    }


def _filled(
    load: Load, memory: float, per_message: int, log_per_s: float, disk: float
) -> dict[str, Any]:
    """When no consumer is left: for how long there is room, and of what there is least."""
    spans = {"memory": max(memory, 0) / (load.rate * per_message)} if load.rate else {}
    if load.disk and log_per_s:
        spans["disk"] = max(load.disk - disk, 0) / (2 * log_per_s)  # what is live takes twice
    found: dict[str, Any] = {f"{name}_full_s": round(span) for name, span in spans.items()}
    first = min(spans, key=spans.__getitem__, default="")
    return {**found, "fills_first": first}
