"""Boot fuzz: random commands over everything, then boots, and the next hour of each.

Frames are made from the wire's own structures: each field is drawn by its name and type, mostly
small, now and then the largest that the type has. So what is added to the protocol is asked for
here too. The node is the real one without its threads and sockets: broker, engine, journal with
tiny segments over the simulated disk, cleaning, files, words of another node, and timers that are
planned as a node plans them. Whatever it takes, it must be able to live with: nothing but an answer
may come of a frame, and the store must boot, WARM and COLD, and go on for an hour.
"""

import random
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, get_args, get_origin

import msgspec

from hms.boot import scheduler
from hms.boot.calendar import CronCalendar
from hms.boot.recovering import RUNS_OF
from hms.engine.cluster.cluster_messages import ClusterMessage, Moving, Offer, encode_message
from hms.engine.cluster.cluster_settings import ClusterSettings, GlobalQueue
from hms.engine.cluster.members import Change, Incarnation
from hms.engine.effects import Effects
from hms.engine.engine import Engine
from hms.engine.settings import DestinationSettings, EngineSettings
from hms.server.broker import INTERNAL, TICK, Broker, Identity, Surroundings
from hms.server.effect_release import append_records
from hms.server.links.cluster_door import CLUSTER_TICK, Door, NodeKey
from hms.server.resource_managers import ResourceManagers
from hms.store.files import FileStore
from hms.store.journal import Journal
from hms.store.journal.segment_manager import LogLimits
from hms.wire import branch_requests, frames
from hms.wire import structures as wire
from hms.wire.commands import OPERATIONS
from hms.wire.frames import Envelope, Kind, as_ranges
from hms.wire.packed_messages import ROW, Head, encode_head
from tests.sim.disk import SimDisk
from tests.sim.setting import NODE_UID, STORE, Alone, Progress
from tests.support.hello import hello_of
from tests.support.memory import Outlet
from tpmon.scheduling.monitor import Monitor

SEGMENT_BYTES = 64 << 10
FRAME_BYTES = 16 << 10
DEFINITIONS_BYTES = SEGMENT_BYTES // 4
"""As boot.sizes has it of these."""
LIMITS = wire.Limits(4_000, FRAME_BYTES, 8, 64, 10.0)
SETTINGS = EngineSettings(
    blocked_ms_max=5_000,
    redelivery_limit=2,
    message_bytes_max=4_000,
    transaction_bytes_max=FRAME_BYTES,
    memory_bytes_max=400_000,
    definitions_bytes_max=DEFINITIONS_BYTES,
    frames_in_flight_max=8,
    prefetch_max=64,
    schedules_max=20,
    calendar=CronCalendar(),
    destinations=(
        DestinationSettings("queue", "orders", messages_max=60, limit_behavior="FLOW_CONTROL"),
        DestinationSettings("queue", "ledger", redelivery_delay_ms=500, expired_to="orders"),
        DestinationSettings("queue", "scratch", is_warm=False),
        DestinationSettings("queue", "shared"),
        DestinationSettings("topic", "news"),
        DestinationSettings("topic", "flash", is_warm=False),
    ),
    cluster=ClusterSettings(((2, "n2"),), 1000, (GlobalQueue("shared", 10, 100, 0),), ("news",)),
)
PEER = NodeKey(2)
CLIENTS = 3
HOUR_MS, LOOKS = 3_600_000, 120
NAMES = ("orders", "ledger", "scratch", "shared", "news", "flash", "mine", "other", "HMS.DLQ", "")
WIDE = "\U0001f600" * 250
WORDS: dict[str, tuple[Any, ...]] = {
    "kind": ("queue", "topic"),
    "destination": NAMES,
    "name": (*NAMES[-5:], *(f"d{n}" for n in range(90))),
    "durable": ("", *(f"d{n}" for n in range(90))),
    "listener": ("", "", "", "SVC"),
    "service": ("SVC", "OTHER"),
    "selector": ("", "", "n > 1", "Name LIKE 'a%'", "("),
    "topic": ("", "", "a/b", "a/#", "news"),
    "scheme": ("", "TOPIC", "CHARACTER"),
    "retained": ("", "ALL", "NEW", "REQUEST"),
    "queue": ("", "", "", "ledger"),
    "cron": ("", "", "* * * * *", "0 0 29 2 *"),
    "time_zone": ("UTC", "Europe/Berlin", "Mars"),
    "missed": ("SKIP", "ONE", "ALL"),
    "every_ms": (0, 100, 1000, 1000, 60_000),
    "xid": tuple(bytes([n]) * 8 for n in range(4)),
    "gtrid": (b"g1", b"g2", b"g3"),
    "session": (1, 1, 2, 2, 3, 4),
    "producer": (1, 2, 3, 4),
    "consumer": (1, 2, 3, 4, 5),
    "ack_mode": (0, 1, 2, 3),
    "credit": (0, 1, 10, 64),
    "sha256": ("", "00" * 32),
    "participants": (b"", b"rm"),
    "branches": ([], [b"\1" * 8]),
    "signature": ("", "x"),
}
VERBS = (
    *(f"{kind}.{verb}" for kind in ("queue", "topic") for verb in ("create", "alter", "delete")),
    *(f"{kind}.{verb}" for kind in ("queue", "topic") for verb in ("pause", "resume", "purge")),
    *("queue.list", "queue.show", "topic.list", "schedule.list", "schedule.cancel", "status"),
    *("destination.lookup.show", "topic.clear", "connection.list", "service.list", "rm.list"),
    *("cluster.status", "transaction.list", "transaction.commit", "transaction.rollback"),
    *("subscription.list", "subscription.delete", "server.list", "store.seal", "history.seal"),
)
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "name": NAMES,
    "max_messages": (0, 5, 1 << 50, 1 << 63),
    "max_bytes": (0, 5_000, 1 << 50),
    "redelivery_limit": (-1, 0, 3, 1 << 62),
    "redelivery_delay_s": (0, 0.5, 86_400, 1e300),
    "limit_behavior": ("REJECT_NEWEST", "REMOVE_OLDEST", "FLOW_CONTROL", "x"),
    "export_name": ("", "jms/x", WIDE),
    "dead_letter": ("", "ledger"),
    "life": ("CREATED", "DYNAMIC"),
    "what": ("PRODUCTION", "CONSUMPTION", "BOTH"),
    "topic_string": ("", "a/b"),
    "selector": ("", "n > 1"),
}
MANAGING = (
    *(f"message.{verb}" for verb in ("list", "view", "move", "copy", "delete", "expire", "alter")),
    *("dlq.queues", "dlq.return", "client.list", "client.show", "client.close"),
)
MANAGED: dict[str, tuple[Any, ...]] = {
    "place": tuple(f"{kind}:{n}" for kind in ("queue", "subscription", "retained") for n in NAMES),
    "to": NAMES,
    "is_all": (True,),
    "limit": (0, 1, 250, 1 << 62),
    "after": (0, 1, 1 << 62),
    "priority": (-1, 0, 9, 1 << 40),
    "ttl_ms": (-1, 0, 5, 1 << 62),
    "deliver_at_ms": (-1, 0, 1 << 41, 1 << 62),
    "older_than_ms": (0, 5, 1 << 62),
    "selector": ("", "n > 1"),
    "returns_max": (0, 3),
    "number": (1, 2, 999),
    "id": ("1", "x"),
}
LARGE = (1 << 31, (1 << 32) - 1, 1 << 32, 1 << 53, 1 << 62, (1 << 63) - 2, (1 << 64) - 1)


class Node:
    """One life. The next one comes on the same disk."""

    def __init__(self, world: "World", *, is_warm: bool | None) -> None:
        self.world, self._jobs = world, list[Callable[[], None]]()
        self.journal = Journal.open(
            STORE,
            segment_bytes=SEGMENT_BYTES,
            node_uid=NODE_UID,
            disk=world.disk,
            limits=LogLimits(log_bytes_max=world.log_bytes_max),
        )
        settings = replace(SETTINGS, paging_share=world.paging_share)
        self.engine, self.outlet = Engine(settings, random.Random(NODE_UID).randbytes), Outlet()
        self.files = FileStore(world.folder, 100_000)
        self.broker = Broker(
            self.engine,
            self.journal,
            Monitor(),
            Identity("fuzz", NODE_UID, LIMITS, "fuzz"),
            lambda: world.now_ms,
            self.files,
        )
        self.broker._lock = Alone()
        self.broker._progress = Progress(lambda: self._work)
        resources = ResourceManagers([{"name": "db", "kind": "sqlite", "open": "x"}])
        self.broker.begin(Surroundings(self, self.outlet, resources=resources, arm=self._arm))
        assert self.engine.cluster is not None
        self.door = Door(self.engine.cluster, self.broker.command, lambda _said: None)
        self.broker.releases.to_node = self.door.release
        self._boot(is_warm)
        self._meet()

    def _boot(self, is_warm: bool | None) -> None:
        recovery = self.engine.recovery(
            partial(self.journal.pinned_records, runs_of=RUNS_OF), self.journal.read
        )
        for _, kind, _, payload, position in self.journal.recover(RUNS_OF):
            recovery.apply(kind, payload, position)
        recovery.finish()
        self.journal.pin(self.engine.pinned_segments())
        fx, first = Effects(), self.journal.last_lsn + 1
        self.engine.boot(self.world.now_ms, is_warm, "fuzz", fx, (first, b"%016x" % first))
        self.journal.start(self._dictionary)
        self.engine.files_found(self.files.open(), self.world.now_ms)
        append_records(self.journal, fx.records)
        self.journal.commit()
        self.journal.maintain()

    def _dictionary(self) -> Any:
        return msgspec.structs.astuple(self.engine.dictionary())[:3]

    def _meet(self) -> None:
        """The other node is there."""
        self.life = Incarnation(self.world.rng.choice((5, 6)), 1)
        self.door.handle(PEER, [Change(2, self.life, is_up=True)])
        self.work()

    # what the broker calls

    def notify(self) -> None:
        """A storage worker would wake up."""

    notify_later = lead_here = notify

    def submit(self, job: Callable[[], None]) -> bool:
        """A storage worker would do it beside the log."""
        self._jobs.append(job)
        return True

    @staticmethod
    def _due_in(due_ms: int, now_ms: int) -> Any:
        return scheduler.after_ms(due_ms - now_ms)

    def _arm(self, due_ms: int) -> None:
        assert self._due_in(due_ms, self.world.now_ms) is not None

    # turns

    def _work(self) -> None:
        self.broker.lead()
        if self._jobs:
            self._jobs.pop(0)()

    def work(self) -> None:
        """What the storage workers do."""
        for _ in range(2000):
            if not self.broker.lead() and not self._jobs:
                return
            if self._jobs:
                self._jobs.pop(0)()
        raise AssertionError("the storage workers' work does not end")

    def hear(self, peer: int, kind: Kind, payload: bytes) -> None:
        """A frame of a client."""
        if len(payload) <= FRAME_BYTES:
            self.broker.handle(peer, [(Envelope(kind, 1, 1, len(payload)), payload)])
            self.outlet.sent.clear()

    def tick(self) -> None:
        """What the scheduler brings."""
        self.broker.handle(INTERNAL, [TICK])
        self.door.handle(NodeKey(0), [CLUSTER_TICK])
        if self.journal.needs_maintenance:
            self.submit(self.broker.maintain)
        self.work()
        self.outlet.sent.clear()

    def _plan_all(self) -> None:
        """Each schedule comes to be the next one some day."""
        schedules = self.engine.state.schedules
        for one in [] if schedules is None else schedules.by_name.values():
            self._arm(one.due_ms)

    def live_on(self) -> None:
        """The next hour, in some hundred looks, and never an early one."""
        end_ms = self.world.now_ms + HOUR_MS
        while self.world.now_ms < end_ms:
            due_ms = self.engine.due_ms()
            step_ms = self.world.now_ms + HOUR_MS // LOOKS
            self.world.now_ms = step_ms if due_ms is None else max(step_ms, min(due_ms, end_ms))
            self.tick()
            self._plan_all()
        self.engine.stopped(self.world.now_ms, Effects())


class World:
    """One run, from one seed. commands: how many frames of clients and other nodes come."""

    def __init__(self, seed: int, folder: Path, commands: int = 500) -> None:
        self.seed, self.folder, self._commands = seed, folder / f"files{seed}", commands
        self.rng = random.Random(seed)
        self.disk = SimDisk(random.Random(seed))
        self.now_ms = 1_700_000_000_000
        self.log_bytes_max = self.rng.choice((0, 0, 16 * SEGMENT_BYTES))
        self.paging_share = self.rng.choice((0.75, 1e-4))
        self.done = 0
        self._sequences = dict[tuple[int, int], int]()
        self._numbers = dict[int, int]()
        self._last = ""

    def run(self) -> str:
        """What went wrong; "" for nothing."""
        try:
            node = Node(self, is_warm=None)
            for peer in range(CLIENTS):
                self._greet(node, peer)
            for frame in self._frames(node):
                self._one(node, frame)
            self._last = "the node stops"
            node.work()
            for is_warm in (True, False, None):
                node.journal.close()
                self._last = f"the boot, is_warm {is_warm}"
                node = Node(self, is_warm=is_warm)
                self._last = f"the hour after the boot, is_warm {is_warm}"
                for peer in range(CLIENTS):
                    self._greet(node, peer, is_back=True)
                node.live_on()
                self._serve(node)
            node.journal.close()
        except Exception as error:
            return f"seed {self.seed}, {self._last}: {error!r}\n{traceback.format_exc()[-2500:]}"
        return ""

    def _one(self, node: Node, frame: tuple[int, Kind, bytes]) -> None:
        peer, kind, payload = frame
        self._last = f"frame {self.done} {kind.name} {payload[:60]!r}"
        self.done += 1
        if kind is Kind.HEARTBEAT:  # stands for a word of the other node
            node.door.handle(PEER, [(node.life, payload)])
        else:
            node.hear(peer, kind, payload)
        if self.rng.random() < 0.15:
            self._last += ", later"
            self.now_ms += self.rng.choice((1, 20, 300, 2_000))
            node.tick()

    def _serve(self, node: Node) -> None:
        """A good client sends what fills some segments."""
        self._last = f"{self._last}, a good client"
        self._greet(node, CLIENTS)
        pack = ROW.pack(0, 3_500, 0, 0, 4, 0, 0, 0) * 4 + bytes(14_000)
        for first in range(1, 40, 4):
            for producer in (1, 4):
                head = frames.SendHead(producer, 4, first, is_persistent=True)
                node.hear(CLIENTS, Kind.SEND, frames.encode_send(head, pack))
            node.tick()

    def _greet(self, node: Node, peer: int, *, is_back: bool = False) -> None:
        """A client with the usual sessions, producers and consumers, the same one as before or
        another."""
        if peer not in self._numbers or not (is_back or self.rng.random() < 0.5):
            self._numbers[peer] = self.rng.getrandbits(40)
            self._sequences = {k: v for k, v in self._sequences.items() if k[0] != peer}
        number = self._numbers[peer]
        client_id = "" if number % 3 == 0 else f"{number}{WIDE}"[:255]
        node.broker.handle(peer, [(Envelope(Kind.GOODBYE, 0, 1, 0), b"")])
        hello = wire.encode(hello_of(number, client_id=client_id))
        node.hear(peer, Kind.HELLO, hello)
        for request in (
            wire.OpenSession(1, 2),
            wire.OpenSession(2, 0, is_transacted=True),
            wire.OpenSession(3, 2, is_xa=True),
            wire.OpenProducer(1, 1, "queue", "orders"),
            wire.OpenProducer(2, 2, "topic", "news"),
            wire.OpenProducer(3, 3, "queue", "ledger"),
            wire.OpenProducer(4, 1, "topic", "flash"),
            wire.OpenConsumer(1, 1, "queue", "ledger", 5),
            wire.OpenConsumer(2, 2, "queue", "orders", 5),
            wire.OpenConsumer(3, 3, "queue", "shared", 5),
        ):
            node.hear(peer, Kind.REQUEST, wire.encode(request))

    # ---- frames

    def _frames(self, node: Node) -> Iterator[tuple[int, Kind, bytes]]:
        rng = self.rng
        makers = (
            (self._request, 40),
            (self._subscription, 18),
            (self._sending, 22),
            (self._settling, 12),
            (self._schedule, 8),
            (self._file, 4),
            (self._call, 4),
            (self._word, 8),
            (self._leave, 2),
        )
        every = [one for one, _ in makers]
        weights = [weight * rng.choice((0.1, 1, 1, 5)) for _, weight in makers]
        for maker in rng.choices(every, weights, k=self._commands):
            peer = rng.randrange(CLIENTS)
            made = maker(node, peer)
            if made is not None:
                yield peer, *made

    def _request(self, _node: Node, _peer: int) -> tuple[Kind, bytes]:
        kind = self.rng.choice(REQUESTS)
        if self.rng.random() < 0.25:
            kind = wire.OpenConsumer
        if kind is wire.Administer:
            return Kind.REQUEST, wire.encode(self._administer())
        return Kind.REQUEST, msgspec.msgpack.encode([kind.__name__, *self._fields(kind)])

    def _subscription(self, _node: Node, _peer: int) -> tuple[Kind, bytes]:
        """A durable one, which is left soon; there is room for some ten of them."""
        rng, handle = self.rng, self.rng.randrange(6, 60)
        if rng.random() < 0.15:
            return Kind.REQUEST, wire.encode(wire.CloseConsumer(handle))
        name, topic = f"d{rng.randrange(90)}", rng.choice(("news", "flash"))
        request = wire.OpenConsumer(handle, 1, "topic", topic, 1, durable=name)
        return Kind.REQUEST, wire.encode(request)

    def _administer(self) -> wire.Administer:
        rng = self.rng
        if rng.random() < 0.3:
            return self._manage()
        given = {
            key: rng.choice(values) for key, values in ARGUMENTS.items() if rng.random() < 0.15
        }
        return wire.Administer(rng.choice(VERBS), {"name": rng.choice(NAMES)} | given)

    def _manage(self) -> wire.Administer:
        """An operator looks after messages: mostly with arguments that the command takes."""
        rng = self.rng
        verb = rng.choice(MANAGING)
        takes = set(OPERATIONS[verb].structure.__struct_fields__)
        needed = {"place", "to", "is_all", "number", "id"}
        given = {
            key: rng.choice(values)
            for key, values in MANAGED.items()
            if key in takes and (key in needed or rng.random() < 0.2)
        }
        return wire.Administer(verb, given)

    def _fields(self, kind: type) -> list[Any]:
        return [self._value(name, hint) for name, hint in _hints(kind)]

    def _value(self, name: str, hint: Any) -> Any:
        rng = self.rng
        if name in WORDS and rng.random() < 0.97:
            return rng.choice(WORDS[name])
        base = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        if base is bool:
            return rng.random() < 0.3
        if base is int:
            return rng.choice(LARGE) if rng.random() < 0.08 else rng.choice((0, 0, 1, 2, 5, 1000))
        if base is bytes:
            return rng.choice((b"", b"\1" * 8, b"\xff" * 64))
        if base is str:
            return rng.choice(("", "x", WIDE))
        return [] if get_origin(base) in (list, tuple) else {}

    def _row(self, head: bytes, body: bytes, *, is_now: bool = False) -> bytes:
        rng = self.rng
        ttl_ms = rng.choice((0, 0, 0, 1, 5_000, 10**12, *LARGE))
        delay_ms = 0 if is_now else rng.choice((0, 0, 0, 0, 1, 2_000, 10**12, *LARGE))
        priority, flags = rng.choice((4, 4, 0, 9, 200)), rng.choice((0, 0, 0, 2, 16))
        kind = rng.choice((0, 0, 1, 6, 5, 99))
        if rng.random() < 0.6:
            ttl_ms, delay_ms, priority, kind = rng.choice((0, 2_000)), delay_ms % 4_096, 4, 0
            delay_ms = 0 if is_now else delay_ms
        return ROW.pack(len(head), len(body), ttl_ms, delay_ms, priority, kind, flags, 0)

    def _message(self) -> tuple[bytes, bytes]:
        rng = self.rng
        properties: dict[str, Any] = {"n": rng.choice((1, 2, (1 << 64) - 1)), "Name": "abc"}
        if rng.random() < 0.2:
            properties |= {"JMS_HMS_GlobalOrder": "o", "JMSXGroupID": "g", "JMSXGroupSeq": 1}
        head = b"" if rng.random() < 0.5 else encode_head(Head(properties))
        return head, bytes(rng.choice((0, 10, 300, 300, 3_000)))

    def _sending(self, _node: Node, peer: int) -> tuple[Kind, bytes]:
        rng, producer = self.rng, self.rng.choice((1, 1, 2, 3, 4))
        first = self._sequences.get((peer, producer), 0) + 1
        count = rng.choice((1, 1, 2, 5))
        is_odd = rng.random() < 0.1
        if is_odd:
            first = rng.choice((1, LARGE[-1], *LARGE))
        elif producer != 3:
            self._sequences[peer, producer] = first + count - 1
        messages = [self._message() for _ in range(count)]
        plain = ROW.pack(0, 0, 0, 0, 4, 0, 0, 0)[8:]
        rows = b"".join(
            ROW.pack(len(head), len(body), 0, 0, 0, 0, 0, 0)[:8] + plain
            if is_odd
            else self._row(head, body)
            for head, body in messages
        )
        pack = rows + b"".join(head + body for head, body in messages)
        head = frames.SEND_HEAD.pack(producer, count, first, rng.random() < 0.85, 0)
        return Kind.SEND, head + pack

    def _settling(self, node: Node, peer: int) -> tuple[Kind, bytes] | None:
        """Of what is out to a consumer, mostly."""
        rng, number = self.rng, node.broker.registry.numbers.get(peer)
        connection = node.engine.state.connections.get(number or 0)
        if connection is None or not connection.consumers:
            return None
        items = []
        for handle, consumer in connection.consumers.items():
            ids = sorted(consumer.out)[: rng.randrange(6)]
            spans = as_ranges(ids) or [(1, rng.choice(LARGE))]
            action = rng.choice(list(frames.Action))
            items.append(
                frames.Settlement(action, handle, consumer.epoch, rng.choice((1, 9)), spans)
            )
        return Kind.SETTLE, frames.encode_settle(
            msgspec.structs.replace(one, ranges=()) if one.action is frames.Action.CREDIT else one
            for one in items
        )

    def _schedule(self, _node: Node, _peer: int) -> tuple[Kind, bytes]:
        rng, (head, body) = self.rng, self._message()
        fields = dict(zip(_names(wire.ScheduleHead), self._fields(wire.ScheduleHead), strict=True))
        fields["name"] = rng.choice(("s1", "s2", "s3", "s4"))
        fields["every_ms"] = 0 if fields["cron"] else fields["every_ms"]
        if rng.random() < 0.5:
            fields |= {"first_ms": rng.choice((0, self.now_ms + 700, *LARGE)), "until_ms": 0}
        encoded = msgspec.msgpack.encode(list(fields.values()))
        pack = self._row(head, body[:300], is_now=rng.random() < 0.9) + head + body[:300]
        return Kind.SCHEDULE, len(encoded).to_bytes(4, "little") + encoded + pack

    def _file(self, _node: Node, _peer: int) -> tuple[Kind, bytes]:
        rng = self.rng
        if rng.random() < 0.5:
            kind = rng.choice((wire.OpenFile, wire.CloseFile, wire.ReadFile))
            return Kind.REQUEST, msgspec.msgpack.encode([kind.__name__, *self._fields(kind)])
        block = wire.FileBlock(rng.choice((0, 1, 2)), rng.choice((0, 0, 5, *LARGE)))
        return Kind.FILE, wire.encode_with_body(block, b"12345")

    def _call(self, _node: Node, _peer: int) -> tuple[Kind, bytes]:
        kind, head = self.rng.choice(
            (
                (Kind.CALL, wire.CallHead),
                (Kind.RESULT, wire.ResultHead),
                (Kind.TALK, wire.TalkHead),
                (Kind.NOTICE, wire.NoticeHead),
            )
        )
        encoded = msgspec.msgpack.encode(self._fields(head))
        return kind, len(encoded).to_bytes(4, "little") + encoded + b"data"

    def _word(self, _node: Node, _peer: int) -> tuple[Kind, bytes]:
        """What another node says: an offer mostly, else any word."""
        rng = self.rng
        if rng.random() < 0.6:
            return Kind.HEARTBEAT, self._offer(_node)
        kind = rng.choice(get_args(ClusterMessage))
        tag = kind.__struct_config__.tag
        encoded = msgspec.msgpack.encode([tag, *self._fields(kind)])
        return Kind.HEARTBEAT, len(encoded).to_bytes(4, "little") + encoded

    def _offer(self, node: Node) -> bytes:
        rng, many = self.rng, (0, 1, 3, (1 << 32) + 5, (1 << 48) - 1)
        numbers = [(2 << 40) + rng.randrange(1 << 30) for _ in range(rng.choice((1, 2)))]
        messages = [
            Moving(
                *(number, rng.choice((1, self.now_ms, (1 << 48) - 1)), 5, rng.choice(many), 4, 0),
                *(0, 3, rng.random() < 0.8, rng.choice(many), rng.choice((0, 0, *many))),
            )
            for number in sorted(numbers)
        ]
        store = node.engine.state.moves.life
        offer = Offer(rng.randrange(1, 1 << 20), 1, store, "shared", messages)
        return encode_message(offer, [b"abc"] * len(messages))

    def _leave(self, node: Node, peer: int) -> None:
        """A client goes, in order or not, and another one comes."""
        self._greet(node, peer)


@cache
def _hints(kind: type) -> list[tuple[str, Any]]:
    return [(field.encode_name, field.type) for field in msgspec.structs.fields(kind)]


def _names(kind: type) -> list[str]:
    return [name for name, _ in _hints(kind)]


def _flat(union: Any) -> list[type]:
    parts: list[type] = []
    for one in get_args(union):
        parts += _flat(one) if isinstance(one, UnionType) else [one]
    return parts


REQUESTS = [*_flat(wire.Request), *([wire.Administer] * 8), *([wire.OpenProducer] * 4)]
assert branch_requests.XaStart in REQUESTS
