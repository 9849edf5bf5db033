"""What a load takes of a machine: formulas, with constants that were measured."""

from dataclasses import dataclass
from typing import Any

__all__ = ["Load", "estimate"]

MEMORY_PER_MESSAGE = 250
"""Bytes that the node counts for a waiting message beside its body and head."""
LIVE_PER_MESSAGE = 64
"""What live_bytes counts for one beside its body and head."""
LOG_PER_MESSAGE = 40
"""Bytes of the log for a message, its delivery and its acknowledgement, in batches."""
PAGED_BYTES = 300
"""A waiting message whose body is in the log only."""
CLIENT_BYTES = 33_000
"""A connection with a session, a consumer and a producer."""
NODE_BYTES = 44 << 20
DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Load:
    """rate: messages a second; size: bytes of a body with its head; durable: the share of them that
    is persistent; backlog: messages that wait at most; retention_s: of the history; clients;
    memory_max: max_memory_bytes."""

    rate: float
    size: int
    durable: float = 1.0
    backlog: int = 0
    retention_s: float = DAY_S
    clients: int = 10
    memory_max: int = 1 << 30


def estimate(load: Load) -> dict[str, Any]:
    """What it takes; bytes, and bytes a second."""
    per_message = load.size + MEMORY_PER_MESSAGE
    wanted = load.backlog * per_message
    in_memory = min(wanted, load.memory_max * 3 // 4)
    paged = 0 if wanted <= in_memory else load.backlog - in_memory // per_message
    logged = load.size + LOG_PER_MESSAGE
    log_per_s = load.rate * load.durable * logged
    live = load.backlog * load.durable * (load.size + LIVE_PER_MESSAGE)
    return {
        "memory_bytes": round(NODE_BYTES + in_memory + paged * PAGED_BYTES)
        + load.clients * CLIENT_BYTES,
        "counted_bytes": round(wanted),
        "paged_messages": round(paged),
        "log_bytes_per_s": round(log_per_s),
        "live_log_bytes": round(live),
        "history_bytes": round(log_per_s * load.retention_s),
        "disk_bytes": round(2 * live + log_per_s * load.retention_s),
        "network_bytes_per_s": round(2 * load.rate * load.size),
    }
