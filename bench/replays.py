"""Replays under kills, and how fast they are: `python -m bench.replays kills 30`, `... rate`.

kills: a replay of three queues into three others is killed (SIGKILL, with its Spark) at random
moments, and now and then the node that takes its messages, until so many runs have died of it; then
the same command ends by itself. A run that ended before its kill is counted apart. Then every
message must be there once, in its order. rate: the same replay without kills, beside
what `hms bench send` brings into the same node.
"""

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import click

import hms
import hms.testing
from hms.history.scan import plan, read_part
from hms.history.scope import parse_scope
from hms.testing import TestNode
from hms.wire.packed_messages import decode_head

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("orders", "bills", "news")
LATEST_S = 300
RATE = 5000
"""Of a replay that is killed: with it a chunk is a tenth of that."""
NODE_EVERY = 6
"""One of so many kills hits the node first."""
_SHIPPED = {
    "segment_bytes": "64 MiB",
    "max_message_bytes": "16 MiB",
    "max_transaction_bytes": "32 MiB",
}
"""What a node has that nobody configures."""
EARLY, START_S = 0.2, 10
"""That share of the kills comes at a moment of the first seconds, while Spark starts."""


class Outcome(NamedTuple):
    """What came of a replay under kills. kills: runs that died of our signal, early: of those, the
    ones that had sent nothing yet; ended: runs that ended before it."""

    messages: int
    kills: int
    early: int
    ended: int
    node_kills: int
    seconds: float
    faults: list[str]


@contextmanager
def past(messages: int, size: int = 200, **own: str) -> Iterator[TestNode]:
    """A node that took so many messages in its three queues; own: settings of the node."""
    queues = {name: {} for name in (*NAMES, *(f"re.{name}" for name in NAMES), "bench")}
    config = {"hms": {"queue": queues}, "node": {"NODE1": {"history_bytes": "4 GiB", **own}}}
    with hms.testing.node(config=config) as node:
        with hms.connect(node.address) as connection, connection.session() as session:
            producers = [session.producer(hms.Queue(name)) for name in NAMES]
            for first in range(0, messages, 1000):
                for i, producer in enumerate(producers):
                    batch = range(first + i, min(first + 1000, messages), len(NAMES))
                    producer.send_many([hms.Message(bytes(size), {"n": n}) for n in batch])
        yield node


def command(node: TestNode, *more: str) -> list[str]:
    """The replay, as an operator types it."""
    own = ["history", "replay", "--path", str(node.store), "--connect", node.address]
    own += ["--destination", ",".join(f"queue:{name}" for name in NAMES)]
    return [sys.executable, "-m", "hms.boot", *own, "--into", "re.{destination}", *more]


def under_kills(messages: int, kills: int, seed: int) -> Outcome:
    """Kill the replay so often, then let it end; what is wrong then."""
    chance, began = random.Random(seed), time.monotonic()
    arguments = ("--rate", str(RATE))
    with past(messages) as node, hms.connect(node.address, reconnect_interval_s=0.2) as looking:
        done = hit = killed = early = ended = 0
        while killed < kills and done < messages:
            child = _start(command(node, *arguments))
            share = (messages - done) // (kills - killed + 1)  # the last is for who ends by itself
            is_alive = _struck(looking, chance, child, done, share)
            if is_alive and killed >= NODE_EVERY * (hit + 1) - 1:
                node.kill()
                node.boot(warm=True)
                hit += 1
                _reached(looking, _arrived(looking) + 1, child)
            is_killed, before = _kill(child), done
            done = _arrived(looking)
            killed, ended = killed + is_killed, ended + (not is_killed)
            early += is_killed and done == before
        last = subprocess.run(command(node, "--json"), cwd=ROOT, capture_output=True, check=False)
        faults = [] if last.returncode == 0 else [last.stderr.decode()]
        faults += [f"{killed} runs were killed, not {kills}"] if killed < kills else []
        faults += check(node)
    return Outcome(messages, killed, early, ended, hit, time.monotonic() - began, faults)


def _struck(
    looking: hms.Connection,
    chance: random.Random,
    child: subprocess.Popen[bytes],
    done: int,
    share: int,
) -> bool:
    """Wait for the moment of the next kill; whether the replay runs still then."""
    goal = done + chance.randint(1, max(1, share))
    early_s = chance.uniform(0, START_S) if chance.random() < EARLY else math.inf
    return _reached(looking, goal, child, early_s)


def check(node: TestNode) -> list[str]:
    """What is not there once and in its order, place by place."""
    faults = []
    for name in NAMES:
        wanted = [offset for offset, _ in _told(node, name)]
        found = [said["$ReplayOffset"] for _, said in _told(node, f"re.{name}")]
        if found != wanted:
            lost, more = set(wanted) - set(found), len(found) - len(set(found))
            faults.append(f"{name}: {len(lost)} lost, {more} twice, of {len(wanted)}")
    return faults


def _told(node: TestNode, name: str) -> Iterator[tuple[int, dict[str, object]]]:
    scope = parse_scope({"destination": f"queue:{name}", "view": "messages"})
    for part in plan(node.store, scope):
        for batch in read_part(part, scope, ("head",)):
            yield from ((event.offset, decode_head(event.head or b"").node) for event in batch)


def _start(arguments: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        arguments,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _reached(
    looking: hms.Connection, goal: int, child: subprocess.Popen[bytes], early_s: float = math.inf
) -> bool:
    """Wait until so many messages have arrived, or for so long; False when the replay has ended."""
    began = time.monotonic()
    while _arrived(looking) < goal and time.monotonic() - began < early_s:
        if child.poll() is not None:
            return False
        assert time.monotonic() - began < LATEST_S, "the replay does not come on"
        time.sleep(0.01)
    return child.poll() is None


def _arrived(looking: hms.Connection) -> int:
    queues = {one["name"]: one for one in looking.administer("queue.list")}
    return sum(queues[f"re.{name}"]["waiting"] for name in NAMES)


def _kill(child: subprocess.Popen[bytes]) -> bool:
    """The process and its Spark: all of its session; whether the process died of it."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    return child.wait(LATEST_S) == -signal.SIGKILL


@click.group()
def main() -> None:
    """See the module."""


@main.command()
@click.argument("count", type=int, default=30)
@click.option("--messages", default=200_000, show_default=True)
@click.option("--seed", type=int, default=None, help="Of the moments; printed.")
def kills(count: int, messages: int, seed: int | None) -> None:
    """Kill a replay so often."""
    seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    click.echo(f"seed {seed}")
    outcome = under_kills(messages, count, seed)
    click.echo(json.dumps(outcome._asdict()))
    sys.exit(bool(outcome.faults))


@main.command()
@click.option("--messages", default=200_000, show_default=True)
@click.option("--size", default=1024, show_default=True)
@click.option("--runs", default=3, show_default=True)
@click.option("--spark", "with_spark", is_flag=True, help="Spark reads, instead of this process.")
def rate(messages: int, size: int, runs: int, *, with_spark: bool) -> None:
    """Messages a second of a replay, as a ratio to hms bench send into the same node."""
    from hms.history import replay, session  # noqa: PLC0415 - only here

    spark = session("bench") if with_spark else None
    with past(messages, size, **_SHIPPED) as node:
        for i in range(runs):
            arguments = ["bench", "send", "--connect", node.address, "--size", str(size), "--json"]
            told = subprocess.run(
                [sys.executable, "-m", "hms.boot", *arguments, "--count", str(messages // 4)],
                cwd=ROOT,
                capture_output=True,
                check=True,
            )
            report = replay(
                spark,
                node.store,
                address=node.address,
                destination="queue:orders,queue:bills,queue:news",
                into="re.{destination}",
                run_id=f"rate-{i}",
            )
            sent = json.loads(told.stdout)["messages_per_s"]
            ratio = report.rate / sent
            click.echo(f"replay {report.rate:,.0f} a second; bench send {sent:,.0f}; {ratio:.2f}")
    if spark is not None:
        spark.stop()


if __name__ == "__main__":
    main()
