"""Managing messages that wait: connection.admin.messages("queue:orders").where(…).move(to="late").

The node does a chunk at each request and says where the next one begins, so consumers and producers
go on beside it. A command that was interrupted has done whole chunks, each message of which is in
one place; saying it again goes on.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, Self

from hms.client.core.arguments import check_number, check_text
from hms.client.core.operations import Outside, Steps
from hms.client.send_options import When, epoch_s
from hms.errors.catalogue import (
    ConnectionClosed,
    ConnectionLost,
    InvalidArgument,
    MessageNotFound,
)

__all__ = ["Admin", "AsyncAdmin", "AsyncMessages", "Messages", "Outcome", "operation_steps"]

IDS_AT_ONCE = 1000
LISTED = 1000
Told = Callable[["Outcome"], object]
"""Called after each chunk with what was done so far. It may use the connection, and in asyncio be a
coroutine function."""


class Requests(Protocol):
    """Those of a connection, for threads or for asyncio."""

    def administering(
        self, verb: str, arguments: dict[str, Any] | None, call: str = ""
    ) -> Steps[Any]:
        """Ask the node."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command did. ids: the first five. skipped_in_flight: at consumers, and not touched;
    skipped_ordered: others wait for them, as of a gathered group or a global order, or they wait
    for their time and their bodies are in the log alone; later: of `count`, those that follow as
    soon as their bodies were read from the log; left: why dead letters were not sent back, and how
    many."""

    count: int = 0
    bytes: int = 0
    ids: tuple[str, ...] = ()
    skipped_in_flight: int = 0
    skipped_ordered: int = 0
    later: int = 0
    left: Mapping[str, int] = field(default_factory=dict)

    def and_then(self, said: Mapping[str, Any]) -> "Outcome":
        """With another chunk."""
        return Outcome(
            self.count + said["count"],
            self.bytes + said["bytes"],
            (*self.ids, *said["ids"])[:5],
            self.skipped_in_flight + said["skipped_in_flight"],
            self.skipped_ordered + said["skipped_ordered"],
            self.later + said["later"],
            Counter(self.left) + Counter(said.get("left", {})),
        )


def operation_steps(
    requests: Requests, verb: str, asked: Mapping[str, Any], told: Told | None = None
) -> Steps[Outcome]:
    """A command on the messages that are meant, chunk by chunk. at_once: the most in one chunk;
    pauses: consumers of the place get none meanwhile."""
    if not asked.get("pauses"):
        return (yield from _chunks(requests, verb, asked, told))
    place = {"place": asked["place"]}
    yield from requests.administering("message.hold", place, f"{verb}()")
    try:
        return (yield from _chunks(requests, verb, asked, told))
    finally:
        with suppress(ConnectionLost, ConnectionClosed):  # then the node lets go by itself
            yield from requests.administering("message.release", place, f"{verb}()")


def _chunks(
    requests: Requests, verb: str, asked: Mapping[str, Any], told: Told | None
) -> Steps[Outcome]:
    outcome, limit, at_once = Outcome(), asked.get("limit", 0), asked.get("at_once", 0)
    asked = {name: value for name, value in asked.items() if name not in ("at_once", "pauses")}
    batches = _batches(asked)
    if asked.get("is_atomic") and len(batches) > 1:
        raise InvalidArgument(what="ids", detail=f"more than {IDS_AT_ONCE} are not done as one")
    for ids in batches:
        at: dict[str, int] = {}
        has_more = True
        while has_more and (not limit or outcome.count < limit):
            wanted = min(limit - outcome.count if limit else at_once, at_once or limit)
            left = {"limit": wanted} if wanted else {}
            arguments = {**asked, **ids, **left, **at}
            said = yield from requests.administering(verb, arguments, f"{verb}()")
            outcome = outcome.and_then(said)
            at = {"after": said["after"], "end": said["end"]}
            has_more = said["has_more"]
            if told is not None:
                yield Outside(partial(told, outcome))
    return outcome


def _batches(asked: Mapping[str, Any]) -> list[dict[str, str]]:
    """The ids in batches of IDS_AT_ONCE; one batch without ids when none were named."""
    ids = asked.get("ids", "").split()
    starts = range(0, len(ids), IDS_AT_ONCE)
    return [{"ids": " ".join(ids[at : at + IDS_AT_ONCE])} for at in starts] or [{}]


def _at(node: str) -> dict[str, str]:
    return {"node": node} if node else {}


def forwarded_steps(requests: Requests, place: str, ids: Sequence[str]) -> Steps[dict[str, Any]]:
    """What is on its way, asked for some of the ids at a time."""
    found: dict[str, Any] = {"ids": [], "refused": {}}
    for start in range(0, max(1, len(ids)), IDS_AT_ONCE):
        asked = {"place": place, "ids": " ".join(ids[start : start + IDS_AT_ONCE])}
        said = yield from requests.administering("message.forwarded", asked, "forwarded()")
        more = {"ids": found["ids"] + said["ids"], "refused": found["refused"] | said["refused"]}
        found = {**said, **more}
    return found


def list_steps(requests: Requests, asked: Mapping[str, Any]) -> Steps[list[dict[str, Any]]]:
    """Rows of the messages that are meant, page by page."""
    rows: list[dict[str, Any]] = []
    limit = asked.get("limit", LISTED)
    at: dict[str, int] = {}
    while len(rows) < limit:
        arguments = {**asked, **at, "limit": limit - len(rows)}
        said = yield from requests.administering("message.list", arguments, "list()")
        rows += said["messages"]
        at = {"after": said["after"], "end": said["end"]}
        if not said["has_more"]:
            break
    return rows


def view_steps(
    requests: Requests, place: str, message_id: str, bytes_max: int
) -> Steps[dict[str, Any]]:
    """One message; MessageNotFound."""
    at: dict[str, int] = {}
    while True:
        arguments = {"place": place, "id": message_id, "bytes_max": bytes_max, **at}
        said = yield from requests.administering("message.view", arguments, "view()")
        if "body" in said:
            shown: dict[str, Any] = said
            return shown
        if not said["has_more"]:
            raise MessageNotFound(message_id=message_id, place=place)
        at = {"after": said["after"], "end": said["end"]}


@dataclass(frozen=True, slots=True)
class _Selection:
    """Which messages of a place are meant."""

    connection: Any
    place: str
    chosen: Mapping[str, Any]

    def where(
        self,
        selector: str = "",
        *,
        ids: Iterable[str] = (),
        since: When | None = None,
        until: When | None = None,
        older_than_s: float = 0,
        type: str = "",  # noqa: A002 - as a message calls it
        min_count: int = 0,
        state: str = "",
        limit: int = 0,
        newest_first: bool = False,
    ) -> Self:
        """Those that fit all of it: a selector; ids; sent since, until (excluded) or longer ago
        than so many seconds; their JMSType; delivered so often at least; state "waiting",
        of that "incomplete" (the rest of its list is missing), or "delayed", in a list "in_flight",
        of that "prepared" (a branch has it); limit: so many at most, the newest ones first."""
        check_text("selector", selector)
        check_number("limit", limit, 0, (1 << 31) - 1)
        check_number("min_count", min_count, 0, (1 << 31) - 1)
        if not 0 <= older_than_s < 1 << 32:
            raise InvalidArgument(what="older_than_s", detail=f"{older_than_s!r} is no such time")
        given: dict[str, Any] = {
            "selector": selector,
            "ids": " ".join(ids),
            "from_ms": 0 if since is None else round(epoch_s("since", since) * 1000),
            "until_ms": 0 if until is None else round(epoch_s("until", until) * 1000),
            "older_than_ms": round(older_than_s * 1000),
            "type": type,
            "min_count": min_count,
            "state": state,
            "limit": limit,
            "is_newest": newest_first,
        }
        return replace(self, chosen={**self.chosen, **{k: v for k, v in given.items() if v}})

    def everything(self) -> Self:
        """All of them: without where() a command that changes needs this said."""
        return replace(self, chosen={**self.chosen, "is_all": True})

    def atomic(self) -> Self:
        """The command that follows does all of it as one record, or raises and does nothing:
        TransactionTooLarge, InvalidArgument."""
        return replace(self, chosen={**self.chosen, "is_atomic": True})

    def by(self, at_once: int) -> Self:
        """The command that follows does so many in a chunk, fewer than it would; told is called
        between two."""
        check_number("at_once", at_once, 1, (1 << 31) - 1)
        return replace(self, chosen={**self.chosen, "at_once": at_once})

    def paused(self) -> Self:
        """While the command that follows works, consumers of the place get nothing; what they have
        is not touched. It ends with the command, or the connection."""
        return replace(self, chosen={**self.chosen, "pauses": True})

    def dry_run(self) -> Self:
        """The command that follows counts, and changes nothing."""
        return replace(self, chosen={**self.chosen, "is_dry": True})

    def _asked(self, **more: Any) -> dict[str, Any]:
        return {"place": self.place, **self.chosen, **more}

    def _alter(
        self, priority: int | None, ttl_s: float | None, deliver_at: When | None
    ) -> dict[str, Any]:
        return self._asked(
            priority=-1 if priority is None else priority,
            ttl_ms=-1 if ttl_s is None else round(ttl_s * 1000),
            deliver_at_ms=-1 if deliver_at is None else round(epoch_s("at", deliver_at) * 1000),
        )


class AsyncMessages(_Selection):
    """The same for asyncio."""

    __slots__ = ()

    async def list(self, properties: Sequence[str] = ()) -> list[dict[str, Any]]:
        """A row for each, 1,000 unless limited: id, time_ms, type, priority, kind, bytes, count,
        state, expires_ms, due_ms, persistent, and the properties named."""
        asked = self._asked(properties=" ".join(properties))
        rows: list[dict[str, Any]] = await self.connection.run(
            list_steps(self.connection.requests, asked)
        )
        return rows

    async def count(self, told: Told | None = None) -> Outcome:
        """How many there are, those in flight too."""
        return await self._change("message.list", self._asked(is_dry=True), told)

    async def move(
        self,
        to: str,
        *,
        reset_count: bool = False,
        node: str = "",
        break_order: bool = False,
        told: Told | None = None,
    ) -> Outcome:
        """To another queue, with id, time, expiry, properties; QueueFull after whole chunks. node:
        the queue is at that one of the cluster; what it does not take comes back, and forwarded()
        tells of it. NodeNotUp. break_order: of a global order too, whose other messages wait for
        them no more; not to another node."""
        breaks = {"is_order_broken": True} if break_order else {}
        asked = self._asked(to=to, is_count_reset=reset_count, **_at(node), **breaks)
        return await self._change("message.move", asked, told)

    async def forwarded(self, ids: Iterable[str] = ()) -> dict[str, Any]:
        """What of the place is on its way to other nodes: count; ids, of those named; refused: why
        others of those named came back, by id; came_back: how many since the node's boot, and why
        the last of them."""
        steps = forwarded_steps(self.connection.requests, self.place, list(ids))
        found: dict[str, Any] = await self.connection.run(steps)
        return found

    async def copy(self, to: str, *, told: Told | None = None) -> Outcome:
        """To a queue, with new ids and $OriginalMessageID."""
        return await self._change("message.copy", self._asked(to=to), told)

    async def send_back(
        self,
        to: str = "",
        *,
        returns_max: int = 3,
        ttl_s: float = 0,
        told: Told | None = None,
    ) -> Outcome:
        """Dead letters go back to the queue, or the one subscription, that they came from, or to
        another queue. Those that were sent back so often stay, and others for which there is a
        reason in Outcome.left."""
        asked = self._asked(to=to, returns_max=returns_max, ttl_ms=round(ttl_s * 1000))
        return await self._change("dlq.return", asked, told)

    async def delete(self, *, told: Told | None = None) -> Outcome:
        """Removed; counted, and in the history."""
        return await self._change("message.delete", self._asked(), told)

    async def expire(self, *, told: Told | None = None) -> Outcome:
        """As if their time were over: to the queue for expired ones, where there is one."""
        return await self._change("message.expire", self._asked(), told)

    async def alter(
        self,
        *,
        priority: int | None = None,
        ttl_s: float | None = None,
        deliver_at: When | None = None,
        told: Told | None = None,
    ) -> Outcome:
        """Another priority, time to live from now on (0: forever), or time of delivery."""
        return await self._change("message.alter", self._alter(priority, ttl_s, deliver_at), told)

    async def take_ids(self, *, to: str = "", told: Told | None = None) -> Outcome:
        """Messages of `hms message import` take the ids and times that they had, and go to a place
        where one is named; why others cannot is in Outcome.left."""
        return await self._change("message.alter", self._asked(is_id_taken=True, to=to), told)

    async def _change(self, verb: str, asked: dict[str, Any], told: Told | None) -> Outcome:
        steps = operation_steps(self.connection.requests, verb, asked, told)
        done: Outcome = await self.connection.run(steps)
        return done


class AsyncAdmin:
    """The same for asyncio."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def messages(self, place: str) -> AsyncMessages:
        """Messages of queue:NAME, subscription:NAME[@TOPIC] or retained:PATTERN."""
        check_text("place", place)
        return AsyncMessages(self._connection, place, {})

    async def view(self, place: str, message_id: str, bytes_max: int = 64 << 10) -> dict[str, Any]:
        """A message: the fields of a list, attempts, head, and so much of its body as bytes, None
        where the log alone has it. MessageNotFound."""
        steps = view_steps(self._connection.requests, place, message_id, bytes_max)
        shown: dict[str, Any] = await self._connection.run(steps)
        return shown


class Messages(_Selection):
    """Messages of a place. Each command returns an Outcome when it is done and on disk; told: is
    called with the Outcome so far after each chunk."""

    __slots__ = ()

    # ---- as in asyncio; made by scripts/generate-client

    def list(self, properties: Sequence[str] = ()) -> list[dict[str, Any]]:
        """A row for each, 1,000 unless limited: id, time_ms, type, priority, kind, bytes, count,
        state, expires_ms, due_ms, persistent, and the properties named."""
        asked = self._asked(properties=" ".join(properties))
        rows: list[dict[str, Any]] = self.connection.run(
            list_steps(self.connection.requests, asked)
        )
        return rows

    def count(self, told: Told | None = None) -> Outcome:
        """How many there are, those in flight too."""
        return self._change("message.list", self._asked(is_dry=True), told)

    def move(
        self,
        to: str,
        *,
        reset_count: bool = False,
        node: str = "",
        break_order: bool = False,
        told: Told | None = None,
    ) -> Outcome:
        """To another queue, with id, time, expiry, properties; QueueFull after whole chunks. node:
        the queue is at that one of the cluster; what it does not take comes back, and forwarded()
        tells of it. NodeNotUp. break_order: of a global order too, whose other messages wait for
        them no more; not to another node."""
        breaks = {"is_order_broken": True} if break_order else {}
        asked = self._asked(to=to, is_count_reset=reset_count, **_at(node), **breaks)
        return self._change("message.move", asked, told)

    def forwarded(self, ids: Iterable[str] = ()) -> dict[str, Any]:
        """What of the place is on its way to other nodes: count; ids, of those named; refused: why
        others of those named came back, by id; came_back: how many since the node's boot, and why
        the last of them."""
        steps = forwarded_steps(self.connection.requests, self.place, list(ids))
        found: dict[str, Any] = self.connection.run(steps)
        return found

    def copy(self, to: str, *, told: Told | None = None) -> Outcome:
        """To a queue, with new ids and $OriginalMessageID."""
        return self._change("message.copy", self._asked(to=to), told)

    def send_back(
        self,
        to: str = "",
        *,
        returns_max: int = 3,
        ttl_s: float = 0,
        told: Told | None = None,
    ) -> Outcome:
        """Dead letters go back to the queue, or the one subscription, that they came from, or to
        another queue. Those that were sent back so often stay, and others for which there is a
        reason in Outcome.left."""
        asked = self._asked(to=to, returns_max=returns_max, ttl_ms=round(ttl_s * 1000))
        return self._change("dlq.return", asked, told)

    def delete(self, *, told: Told | None = None) -> Outcome:
        """Removed; counted, and in the history."""
        return self._change("message.delete", self._asked(), told)

    def expire(self, *, told: Told | None = None) -> Outcome:
        """As if their time were over: to the queue for expired ones, where there is one."""
        return self._change("message.expire", self._asked(), told)

    def alter(
        self,
        *,
        priority: int | None = None,
        ttl_s: float | None = None,
        deliver_at: When | None = None,
        told: Told | None = None,
    ) -> Outcome:
        """Another priority, time to live from now on (0: forever), or time of delivery."""
        return self._change("message.alter", self._alter(priority, ttl_s, deliver_at), told)

    def take_ids(self, *, to: str = "", told: Told | None = None) -> Outcome:
        """Messages of `hms message import` take the ids and times that they had, and go to a place
        where one is named; why others cannot is in Outcome.left."""
        return self._change("message.alter", self._asked(is_id_taken=True, to=to), told)

    def _change(self, verb: str, asked: dict[str, Any], told: Told | None) -> Outcome:
        steps = operation_steps(self.connection.requests, verb, asked, told)
        done: Outcome = self.connection.run(steps)
        return done

    # ---- end of what is made


class Admin:
    """What operators do, over a connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    # ---- as in asyncio; made by scripts/generate-client

    def messages(self, place: str) -> Messages:
        """Messages of queue:NAME, subscription:NAME[@TOPIC] or retained:PATTERN."""
        check_text("place", place)
        return Messages(self._connection, place, {})

    def view(self, place: str, message_id: str, bytes_max: int = 64 << 10) -> dict[str, Any]:
        """A message: the fields of a list, attempts, head, and so much of its body as bytes, None
        where the log alone has it. MessageNotFound."""
        steps = view_steps(self._connection.requests, place, message_id, bytes_max)
        shown: dict[str, Any] = self._connection.run(steps)
        return shown

    # ---- end of what is made
