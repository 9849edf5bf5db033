"""The workloads W1 to W8; W9 repeats them at growing sizes (growth.py)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from hms.boot.bench.client import Task
from hms.boot.bench.load import Load
from hms.boot.bench.systems import Needs, Running, System

__all__ = ["WORKLOADS", "Workload"]

QUEUE, TOPIC, SERVICE = "bench", "benchnews", "ECHO"
FAN = 4
SELECTORS = 1000
DURABLE_SUBSCRIBERS = 10_000
DURABLE_KEYS = 1000
_WAIT_S = 60.0
_SHARED_S = 1.0
"""When nothing came for so long, others have taken the rest."""


@dataclass(frozen=True)
class Workload:
    """What is measured: one process for each role. limit_factor: how many times as many messages
    the null broker is given, so that it is timed for as long; is_limit_packed: whether it gets
    them packed 64 to a frame."""

    name: str
    title: str
    roles: tuple[str, ...]
    count: int
    is_durable: bool = True
    size: int = 1024
    window: int = 1000
    rate: float = 0
    fan: int = 1
    is_filled: bool = False
    is_topic: bool = False
    selector: str = ""
    keys: int = 0
    ack_every: int = 0
    subscriptions: int = 0
    limit_factor: int = 1
    is_limit_packed: bool = True
    node: Mapping[str, Any] = field(default_factory=dict)

    @property
    def destination(self) -> str:
        """Where it sends to."""
        return f"topic:{TOPIC}" if self.is_topic else f"queue:{QUEUE}"

    @property
    def is_call(self) -> bool:
        """Whether a service is called."""
        return "call_each" in self.roles

    @property
    def has_receivers(self) -> bool:
        """Whether what is received is what counts."""
        return "receive" in self.roles

    def with_clients(self, count: int) -> "Workload":
        """The same with so many of the clients that it is about."""
        return replace(self, roles=self.roles * count if len(self.roles) == 1 else self.roles)

    def shortened(self, count: int) -> "Workload":
        """The same with so many messages, for the limit too."""
        return replace(self, count=count, limit_factor=1)

    def with_count(self, count: int) -> "Workload":
        """The same with so many messages; the limit still gets its multiple."""
        return replace(self, count=count)

    def for_limit(self) -> "Workload":
        """What the null broker is given."""
        return replace(self, count=self.count * self.limit_factor)

    def needs(self) -> Needs:
        """What the system has to have."""
        names = ((f"s{i}", (TOPIC, f"Key = {i % DURABLE_KEYS}")) for i in range(self.subscriptions))
        return Needs(
            queues=() if self.is_topic else (QUEUE,),
            topics=(TOPIC,) if self.is_topic else (),
            subscriptions=dict(names),
            window=self.window,
            is_durable=self.is_durable,
            is_filled=self.is_filled,
            has_service=self.is_call,
            is_packed=self.is_limit_packed,
            node=self.node,
        )

    def tasks(self, system: System, running: Running) -> list[Task]:
        """One for each process; those of one role share the messages."""
        return [
            Task(
                role=role,
                driver=system.driver,
                address=running.address,
                load=self._load(role, number, is_null=system.name == "limit"),
                options=dict(running.options),
            )
            for number, role in enumerate(self.roles)
        ]

    def fill(self, system: System, running: Running) -> Task:
        """What puts the messages there that are received later."""
        load = structs.replace(self._load("send", 0, is_null=False), count=self.count)
        options = dict(running.options)
        return Task(
            role="send", driver=system.driver, address=running.address, load=load, options=options
        )

    def _load(self, role: str, number: int, *, is_null: bool) -> Load:
        shared = 1 if self.is_topic else self.roles.count(role) or 1
        is_receiver = role == "receive"
        # Who shares a queue takes what it gets: to wait for its share would be to wait for ever.
        # The null broker gives each its own.
        is_sharing = shared > 1 and not is_null
        takes_all = is_receiver and (bool(self.selector) or is_sharing)
        return Load(
            destination=self.destination,
            count=self.count // shared,
            size=self.size,
            is_durable=self.is_durable,
            window=max(1, self.window // shared),
            rate=self.rate,
            fan=self.fan if is_receiver else 1,
            expected=self.count if takes_all else 0,
            timeout_s=_SHARED_S if takes_all and is_sharing else _WAIT_S,
            sender=number,
            selector=self.selector,
            keys=self.keys,
            ack_every=self.ack_every,
            is_stamped=not is_null,
            run=b"benchrun",
        )


_ALL = (
    Workload(
        "W1",
        "durable send, one at a time",
        ("send_each",),
        3000,
        window=1,
        is_limit_packed=False,
    ),
    Workload("W2", "durable send, pipelined", ("send",), 200_000, limit_factor=3),
    Workload(
        "W2s", "durable send, pipelined, 128 B", ("send",), 300_000, size=128, limit_factor=10
    ),
    Workload(
        "W3",
        "consume and acknowledge from a filled queue",
        ("receive",),
        100_000,
        is_filled=True,
        limit_factor=3,
    ),
    Workload(
        "W3b",
        "the same, acknowledged by hand per 100",
        ("receive",),
        100_000,
        is_filled=True,
        ack_every=100,
        limit_factor=3,
    ),
    Workload("W4", "end to end, durable", ("receive", "send"), 100_000, limit_factor=2),
    Workload(
        "W4r",
        "end to end, durable, at 500 messages/s",
        ("receive", "send_timed"),
        2500,
        rate=500,
        is_limit_packed=False,
    ),
    Workload(
        "W5",
        "end to end, non-durable",
        ("receive", "send"),
        150_000,
        is_durable=False,
        limit_factor=5,
    ),
    Workload(
        "W6",
        "topic fan-out, one publisher to 8 subscribers, non-durable",
        ("receive", "receive", "send"),
        30_000,
        is_durable=False,
        fan=FAN,
        is_topic=True,
        limit_factor=3,
    ),
    Workload(
        "W7",
        "topic, 1,000 subscribers with a selector each, non-durable",
        ("receive", "send"),
        10_000,
        is_durable=False,
        size=256,
        fan=SELECTORS,
        is_topic=True,
        selector="Key = {}",
        keys=SELECTORS,
    ),
    Workload(
        "W7d",
        "topic, 10,000 durable subscriptions with 1,000 selectors",
        ("send",),
        256,
        size=256,
        is_topic=True,
        keys=DURABLE_KEYS,
        subscriptions=DURABLE_SUBSCRIBERS,
        node={"max_memory_bytes": "16 GiB"},
    ),
    Workload(
        "W8",
        "request and reply through a service",
        ("call_each",),
        3000,
        is_durable=False,
        is_limit_packed=False,
    ),
)

WORKLOADS = {workload.name: workload for workload in _ALL}
