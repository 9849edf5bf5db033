"""Frames for the wire fuzz: of every kind and request, right, at a limit, or slightly wrong."""

import random
from pathlib import Path
from typing import Any

import msgspec

from hms.wire import frames
from hms.wire import structures as wire
from hms.wire.frames import Kind
from hms.wire.packed_messages import ROW, Head, encode_head

__all__ = ["Drawn", "Frames"]

CORPUS = Path(__file__).parent.parent / "fixtures" / "wire" / "corpus.txt"
NAMES = ["orders", "news", "shared", "billing", "queue", "topic", "HMS.DLQ", "a/b", "#", ""]
TEXTS = [
    *NAMES,
    "TOPIC",
    "ALL",
    "a = 1",
    "a LIKE '%_b%'",
    "x" * 255,
    "x" * 256,
    "\x00",
    "\u20ac" * 99,
]
NUMBERS = [0, 1, 2, 3, 255, 65_536, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 63) - 1]
NUMBERS += [1 << 63, (1 << 64) - 1, -1, -(1 << 63)]
XIDS = [bytes([0, 0, 0, 1, 2, 1]) + b"gt" + bytes([n]) for n in range(4)]
BYTES = [b"", b"G", b"\xff" * 64, b"x" * 134, *XIDS]
VERBS = ["status", "queue.list", "queue.show", "queue.purge", "topic.list", "topic.show"]
VERBS += ["topic.tree", "topic.purge", "subscription.list", "session.list", "transaction.list"]
VERBS += ["transaction.show", "transaction.rollback", "schedule.list", "schedule.cancel"]
VERBS += ["service.list", "server.list", "server.scale", "resource.list", "resource.report"]
VERBS += [
    "log.seal",
    "store.finalize",
    "destination.lookup.show",
    "topic.clear_retained",
    "cluster.status",
    "?",
]
"""Not those that may legally end what others use."""

LIKELY: list[tuple[tuple[str, ...], list[Any]]] = [
    (("session", "producer", "consumer", "handle", "request"), [1, 2, 3, 4, 5]),
    (("xid", "gtrid"), [*XIDS]),
    (("kind",), ["queue", "topic", 0, 2]),
    (("destination", "service", "listener"), [*NAMES]),
    (("credit", "ack_mode", "flags", "number", "count_max", "offset"), [0, 1, 3, 100, 0x04000000]),
    (("participants", "secret"), [*BYTES]),
    (("branches",), [[one] for one in XIDS]),
]
"""By the names of fields."""

MANY_RANGES = 300

Drawn = tuple[int, bytes]
"""Kind and payload."""


class Frames:
    """Draws them from one seed."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._corpus = list(read_corpus())
        self._requests = [kind.__name__ for kind in wire.Request.__args__]
        self._sequence = 1
        self._many = b"".join(self._range() for _ in range(MANY_RANGES))

    def draw(self) -> Drawn:
        """One frame."""
        rng = self._rng
        kind, payload = rng.choices(
            (self._request, self._send, self._settle, self._with_body, self._known, self._junk),
            (40, 15, 15, 12, 8, 10),
        )[0]()
        return (kind, self.mutated(payload)) if rng.random() < 0.3 else (kind, payload)

    def mutated(self, payload: bytes) -> bytes:
        """A few bits, bytes, lengths or ends of it are wrong."""
        rng, data = self._rng, bytearray(payload)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(data)) if data else 0
            how = rng.randrange(6)
            if how == 0 and data:
                data[at] ^= 1 << rng.randrange(8)
            elif how == 1 and data:
                data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xC1, 0xFF))
            elif how == 2:
                del data[at:]
            elif how == 3:
                data[at:at] = rng.randbytes(rng.randint(1, 8))
            elif how == 4:
                data[at : at + 4] = rng.choice((0, 1, 0x7FFFFFFF, 0xFFFFFFFF)).to_bytes(4, "little")
            else:
                data += data[at:]
        return bytes(data[: 1 << 16])

    # kinds

    def _request(self) -> Drawn:
        rng = self._rng
        name = rng.choice(self._requests)
        fields: list[Any] = [self._field() for _ in range(rng.randint(0, 9))]
        if name == "Administer":
            arguments = {"name": rng.choice(NAMES), rng.choice(TEXTS): self._field()}
            fields = [rng.choice(VERBS), arguments]
        elif rng.random() < 0.7:
            fields = [self._likely(one) for one in _annotations(name)]
            fields = fields[: rng.randint(0, len(fields))] if rng.random() < 0.2 else fields
        return Kind.REQUEST, _packed([name, *fields])

    def _send(self) -> Drawn:
        rng = self._rng
        count = rng.choice((1, 1, 1, 2, 30, 1024))
        head = encode_head(Head({"a": "b" * rng.choice((0, 1, 100))}))
        body = rng.randbytes(rng.choice((0, 1, 50)))
        ttl, delay = rng.choice((0, 0, 1, 1 << 63)), rng.choice((0, 0, 0, 100, 1 << 63))
        row = ROW.pack(
            len(head), len(body), ttl, delay, rng.randint(0, 10), rng.randint(0, 6), 0, 0
        )
        sequence = self._sequence if rng.random() < 0.8 else rng.choice(NUMBERS[:-2])
        self._sequence += count
        producer, flags = rng.randint(0, 5), rng.randint(0, 1)
        packed = frames.SEND_HEAD.pack(producer, count, sequence, flags, 0)
        return Kind.SEND, packed + row * count + (head + body) * count

    def _settle(self) -> Drawn:
        rng, parts = self._rng, []
        for _ in range(rng.choice((1, 1, 3, 100))):
            action, consumer = rng.randint(0, 8), rng.randint(0, 5)
            count = rng.choice((0, 1, 1, 2, MANY_RANGES))
            n = count if rng.random() < 0.9 else rng.choice((0, 1 << 31, (1 << 32) - 1))
            parts.append(frames.SETTLE_ITEM.pack(action, consumer, rng.randint(0, 2), n))
            parts += [self._many] if count == MANY_RANGES else [self._range() for _ in range(count)]
        return Kind.SETTLE, b"".join(parts)

    def _range(self) -> bytes:
        return frames.RANGE.pack(*sorted((self._id(), self._id())))

    def _id(self) -> int:
        own = (1 << 40) + self._rng.randint(0, 5000)
        return self._rng.choice((own, own, self._rng.choice(NUMBERS[:-2])))

    def _with_body(self) -> Drawn:
        rng = self._rng
        kinds = {
            Kind.CALL: wire.CallHead,
            Kind.RESULT: wire.ResultHead,
            Kind.TALK: wire.TalkHead,
            Kind.FILE: wire.FileBlock,
            Kind.SCHEDULE: wire.ScheduleHead,
            Kind.NOTICE: wire.NoticeHead,
            Kind.HELLO: wire.Hello,
        }
        kind, structure = rng.choice(list(kinds.items()))
        types = msgspec.structs.fields(structure)
        head = _packed([self._likely(one.name) for one in types])
        if kind is Kind.HELLO:
            return kind, head
        body = rng.randbytes(rng.choice((0, 10, 1000)))
        if kind is Kind.SCHEDULE:
            body = ROW.pack(0, 1, 0, 0, 4, 0, 0, 0) + b"x"
        return kind, len(head).to_bytes(4, "little") + head + body

    def _known(self) -> Drawn:
        return self._rng.choice(self._corpus)

    def _junk(self) -> Drawn:
        return self._rng.randrange(26), self._rng.randbytes(self._rng.choice((0, 3, 60, 2000)))

    # fields

    def _likely(self, name: str) -> Any:
        """A value that a field of that name may have."""
        rng = self._rng
        if rng.random() < 0.1:
            return self._field()
        for names, values in LIKELY:
            if name in names:
                return rng.choice(values)
        if name.startswith(("is_", "may_", "gives_")):
            return rng.random() < 0.3
        if name.endswith(("_ms", "_bytes", "_us", "_max", "number", "after", "call", "client")):
            return rng.choice((0, 0, 1, 1000, rng.choice(NUMBERS)))
        return rng.choice(("", *TEXTS))

    def _field(self) -> Any:
        rng = self._rng
        pool = rng.choice((NUMBERS, TEXTS, BYTES, [True, False, None, {}, [], [[]] * 3, 1.5]))
        return rng.choice(pool)


def read_corpus() -> list[Drawn]:
    """What tests/fixtures/wire/corpus.txt has."""
    lines = [line.split() for line in CORPUS.read_text().splitlines()]
    found = [line for line in lines if line and not line[0].startswith("#")]
    return [(int(Kind[kind]), bytes.fromhex(payload)) for kind, payload in found]


def _annotations(name: str) -> list[str]:
    (kind,) = [one for one in wire.Request.__args__ if one.__name__ == name]
    return [field.name for field in msgspec.structs.fields(kind)]


def _packed(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)
