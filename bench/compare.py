"""HMS beside other brokers: `python -m bench.compare W2 --peers redis-always,postgres --runs 3`.

Each system is started on loopback with an empty store, run after run in turn. What is not
installed is skipped, and said so. A confirmed durable send is compared only with one that means the
same: the others are listed below the line.
"""

from collections.abc import Sequence

from bench.command import parser, said, show, workloads
from bench.peers.activemq import ACTIVEMQ
from bench.peers.nats import NATS_CORE, NATS_JETSTREAM
from bench.peers.postgres import POSTGRES
from bench.peers.rabbitmq import RABBITMQ_CLASSIC, RABBITMQ_QUORUM
from bench.peers.redis import REDIS_ALWAYS, REDIS_EVERY_SECOND, REDIS_MEMORY
from bench.peers.server import Peer
from hms.boot.bench.pairs import Row, compare
from hms.boot.bench.systems import HMS, NullSystem, System
from hms.boot.bench.workloads import Workload

__all__ = ["PEERS", "main"]

PEERS: tuple[Peer, ...] = (
    RABBITMQ_QUORUM,
    RABBITMQ_CLASSIC,
    ACTIVEMQ,
    NATS_JETSTREAM,
    NATS_CORE,
    REDIS_ALWAYS,
    REDIS_EVERY_SECOND,
    REDIS_MEMORY,
    POSTGRES,
)


def _chosen(names: str) -> list[Peer]:
    """The peers that were named, without those that are not installed."""
    wanted = [peer for peer in PEERS if names in {"", "all"} or peer.name in names.split(",")]
    found = []
    for peer in wanted:
        if missing := peer.missing():
            said(f"{peer.name} is skipped: {', '.join(missing)} is not installed")
        else:
            found.append(peer)
    return found


def _fitting(peers: Sequence[Peer], workload: Workload) -> list[Peer]:
    """Those that can do the workload, the synced ones first."""
    able = [peer for peer in peers if workload.name in peer.workloads]
    return sorted(able, key=lambda peer: not peer.is_synced)


def _verdict(workload: Workload, rows: Sequence[Row], peers: Sequence[Peer]) -> str:
    """Who is first among those whose confirmation is worth the same."""
    alike = {peer.name for peer in peers if peer.is_synced or not workload.is_durable}
    rated = [row for row in rows if row.system in alike]
    if not rated:
        return f"{workload.name}: no peer of the same durability was measured"
    best = max(rated, key=lambda row: row.rate)
    kind = "synced" if workload.is_durable else "any"
    return f"{workload.name}: {best.ratio:.2f} of {best.system}, the best peer ({kind})"


def main() -> None:
    """Each workload on HMS, its limit and every peer that can do it, in turn."""
    made = parser("Measure HMS beside other brokers.")
    made.add_argument("--peers", default="all", help=", ".join(peer.name for peer in PEERS))
    options = made.parse_args()
    peers = _chosen(options.peers)
    rows: list[Row] = []
    verdicts: list[str] = []
    for workload in workloads(options):
        beside = _fitting(peers, workload)
        measured: list[System] = [HMS, NullSystem(), *beside]
        found = compare(measured, workload, options.data, options.runs, said)
        verdicts.append(_verdict(workload, found, beside))
        rows += found
    show(options, rows)
    print("\nWhat a confirmed durable send is worth:")
    systems: list[System] = [HMS, *peers]
    for system in systems:
        print(f"  {system.name:18} {system.durability}")
    print("\nHMS to the best peer of the same durability:")
    print("\n".join(f"  {verdict}" for verdict in verdicts))


if __name__ == "__main__":
    main()
