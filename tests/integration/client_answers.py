"""What a scripted node answers by itself: every request is granted, every SEND confirmed."""

import itertools
from collections.abc import Callable
from typing import Any

from client_frames import TIMESTAMP_MS

from hms.errors.tree import HmsError
from hms.wire import frames, structures
from hms.wire.frames import CONFIRM_BODY, Action, Kind
from hms.wire.structures import Limits, OpenConsumer, OpenSession, Welcome


class Consumer:
    """What the fake node knows of a consumer."""

    def __init__(self, opening: OpenConsumer) -> None:
        self.opening = opening
        self.credit = opening.credit
        self.epoch = 0


class Answers:
    """See the module; `on` replaces the answer to a kind of frame or request."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.log = limits, b""
        self.on: dict[Any, Callable[..., Any]] = {}
        self.consumers: dict[int, Consumer] = {}
        self.commits: dict[int, int] = {}
        self.is_recording = True
        self._ids = itertools.count(1)

    def _decoded(self, kind: Kind, payload: bytes) -> Any:
        if kind is Kind.REQUEST:
            return structures.decode_request(payload)
        if kind is Kind.HELLO:
            return structures.decode(payload, structures.Hello)
        if kind is Kind.SETTLE:
            return frames.decode_settle(payload)
        if kind is Kind.CALL or (kind is Kind.SEND and self.is_recording):
            return payload
        return None

    def _answer(self, kind: Kind, correlation: int, what: Any, payload: bytes) -> None:
        script = self.on.get(type(what)) or self.on.get(kind)
        try:
            reply = script(what) if script else self._usual(kind, what, payload)
        except HmsError as error:
            self.say(Kind.ERROR, structures.encode_error(error), correlation)
            return
        if reply is not None and correlation:
            self.say(*reply, correlation)

    def _usual(self, kind: Kind, what: Any, payload: bytes) -> tuple[Kind, bytes] | None:
        if kind is Kind.SEND:
            count = frames.decode_send(payload).message_count
            first = next(self._ids)
            self._ids = itertools.count(first + count)
            return Kind.CONFIRM, CONFIRM_BODY.pack(first, TIMESTAMP_MS, count)
        if kind is Kind.HELLO:
            return Kind.WELCOME, structures.encode(Welcome(1, "fake", 7, self.limits, log=self.log))
        if kind is Kind.SETTLE:
            self._credit(what)
        return self._granted(what) if kind in (Kind.REQUEST, Kind.SETTLE) else None

    def _credit(self, items: list[frames.Settlement]) -> None:
        for item in items:
            consumer = self.consumers.get(item.consumer)
            if item.action is Action.CREDIT and consumer and item.epoch == consumer.epoch:
                consumer.credit += item.credit

    def _granted(self, what: Any) -> tuple[Kind, bytes]:
        name = type(what).__name__
        if isinstance(what, OpenConsumer):
            self.consumers[what.consumer] = Consumer(what)
        elif isinstance(what, OpenSession):
            last = self.commits.get(what.session, 0)
            return Kind.REPLY, structures.encode({"last_commit": last})
        elif name == "Commit":
            self.commits[what.session] = what.number
            return Kind.REPLY, b"\xc3"
        elif name in ("Recover", "Rollback"):
            for consumer in self.consumers.values():
                consumer.epoch += 1
        elif name == "CloseConsumer":
            self.consumers.pop(what.consumer, None)
        elif name == "CloseSession":
            for number in [
                n for n, c in self.consumers.items() if c.opening.session == what.session
            ]:
                del self.consumers[number]
        return Kind.REPLY, b""
