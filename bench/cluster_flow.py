"""W10, consumers only at node B, producers only at node A: what B delivers, against A alone.

    python -m bench.cluster_flow [--messages 20000] [--requests 1 100 1000]

Two real nodes on loopback, persistent messages of 1 KiB, one producer, one consumer. The ratio is
of deliveries a second at B, for each GQMAXREQ, to those at A when the consumer is there.
"""

import argparse
import time
from collections.abc import Sequence

import hms
from hms.testing import node

__all__ = ["main"]

BODY = b"x" * 1024
QUEUE = hms.Queue("orders")
WAIT_S = 60.0


def rate(sender: str, receiver: str, count: int) -> float:
    """Deliveries a second, from the first send to the last receive."""
    with (
        hms.connect(sender) as out,
        hms.connect(receiver) as inn,
        out.session() as sends,
        inn.session(ack=hms.AckMode.DUPS_OK) as receives,
    ):
        consumer, producer = receives.consumer(QUEUE), sends.producer(QUEUE)
        begin = time.perf_counter()
        producer.send_many(hms.Message(BODY) for _ in range(count))
        for _ in range(count):
            assert consumer.receive(timeout_s=WAIT_S) is not None, "a message did not come"
        return count / (time.perf_counter() - begin)


def measure(count: int, requests: Sequence[int]) -> dict[int, float]:
    """Rates by GQMAXREQ; 0: locally."""
    found: dict[int, float] = {}
    for most in requests:
        queue = {"GLOBAL": "Y", "GQMAXREQ": most, "GQTHR": max(100, most)}
        with node(config={"hms": {"queue": {"orders": queue}}}, nodes=2) as first:
            here, there = (one.address for one in first.nodes)
            await_up(here)
            found.setdefault(0, rate(here, here, count))
            found[most] = rate(here, there, count if most > 1 else count // 10)
    return found


def await_up(address: str) -> None:
    """Until the nodes hear one another."""
    until = time.monotonic() + WAIT_S
    with hms.connect(address) as conn:
        while not all(one["is_up"] for one in conn.administer("cluster.status")["members"]):
            assert time.monotonic() < until, "the nodes do not find one another"
            time.sleep(0.05)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.cluster_flow", description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 100, 1000])
    given = parser.parse_args(arguments)
    found = measure(given.messages, given.requests)
    for most, per_s in found.items():
        name = f"at B, GQMAXREQ {most}" if most else "at A itself"
        print(f"{name:24} {per_s:10,.0f} msgs/s  {per_s / found[0]:6.2f} x")


if __name__ == "__main__":
    main()
