"""What waited at a place at a moment of the past, out of the history: hms message export --at.

The history is read twice: first every event of the place up to the moment, of which the ids and
offsets of what had come and not left are kept, and nothing of the messages; then the rows of these,
with head and body, in the order in which they came. What was at a consumer and not acknowledged by
then had not left.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hms.errors.catalogue import HistoryGone, InvalidArgument, NotSupported
from hms.history.archive_read import end_offset, first_offset
from hms.history.events import KINDS, Event
from hms.history.identity import identity_of
from hms.history.scan import PathName, plan, read_part
from hms.history.scope import WITH_HEAD, Scope, parse_time_ms
from hms.history.selection import selector_test
from hms.wire.packed_messages import KIND_FILE, KIND_MASK, DeliveredRow

if TYPE_CHECKING:
    from hms.client.message import Message

__all__ = ["Past"]

_LEAVES = frozenset(("acknowledged", "discarded", "expired", "dead_lettered", "purged", "moved"))
_PLAIN = ("offset", "event", "time", "message_id")
_SUBSCRIPTIONS = ("subscription", "subscriptions")
_WHOLE = (*_PLAIN, "priority", "timestamp", "expiration", "kind", "head", "body")


class Past:
    """A place of a history at a moment. path: of a store or an archive; at: an LSN, which counts
    still, or a time. InvalidArgument, HistoryGone, NotSupported."""

    def __init__(self, path: PathName, place: str, at: str, selector: str = "") -> None:
        self._path = path
        self._kind, self._name, subscription = _place_of(place)
        self._subscription = self._found(subscription) if "@" in subscription else subscription
        self._matches = selector_test(selector) if selector else None
        self.files = 0
        """File messages that were left out: their files are not in the history."""
        self.first_offset, end = first_offset(path), end_offset(path)
        if self.first_offset > 1:
            detail = "what waited then may have come before: give an archive as --path"
            raise HistoryGone(first=1, last=self.first_offset - 1, detail=detail)
        self._until_ms: int | None = None
        if at.isdecimal():
            self.last_offset = int(at)
            if not self.first_offset <= self.last_offset < end:
                detail = f"LSN {at} is not in the history: {self.first_offset} to {end - 1}"
                raise InvalidArgument(what="at", detail=detail)
        else:
            self.last_offset = end - 1
            self._until_ms = _time_of(at) + 1
        found = identity_of(path)
        self.store = found.store.hex()

    def messages(self) -> "Iterator[Message]":
        """Those that waited, in the order in which they came."""
        waiting, deliveries = self._waiting()
        wanted = {offset: deliveries[id_] for id_, offset in waiting.items()}
        for event in self._events(_WHOLE, WITH_HEAD):
            if event.offset not in wanted:
                continue
            if _kind_of(event) & KIND_MASK == KIND_FILE:
                self.files += 1
            elif self._matches is None or self._matches(event):
                yield _message(event, wanted[event.offset])

    def _waiting(self) -> tuple[dict[str, int], Counter[str]]:
        """By the ids of what had come and not left the offsets of their rows, and how often each
        was delivered."""
        waiting: dict[str, int] = {}
        deliveries = Counter[str]()
        is_begun = self._until_ms is None
        for event in self._events(_PLAIN, frozenset()):
            is_begun = True
            if event.event in WITH_HEAD:
                waiting[event.message_id] = event.offset
            elif event.event in _LEAVES:
                waiting.pop(event.message_id, None)
                deliveries.pop(event.message_id, None)
            elif event.event == "delivered":
                deliveries[event.message_id] += 1
        if not is_begun and self._is_before_all():
            detail = f"the history of {self._path} begins later"
            raise InvalidArgument(what="at", detail=detail)
        return waiting, deliveries

    def _events(self, columns: tuple[str, ...], names: frozenset[str]) -> Iterator[Event]:
        scope = Scope(
            destinations=frozenset([(self._kind, self._name)]) if self._name else frozenset(),
            events=names,
            until_ms=self._until_ms,
            until_offset=self.last_offset + 1,
            includes_body="body" in columns,
        )
        fields = (*columns, "destination", "destination_kind", "subscription", "subscriptions")
        for part in plan(self._path, scope):
            for batch in read_part(part, scope, fields):
                for event in batch:
                    if event.offset <= self.last_offset and self._is_here(event):
                        yield event

    def _is_here(self, event: Event) -> bool:
        """Of a subscription: what it took of its topics, and what it did with that."""
        if not self._subscription:
            return True
        if event.event in WITH_HEAD:
            return self._subscription in (event.subscriptions or ())
        return event.subscription == self._subscription

    def _found(self, text: str) -> str:
        """The name of a subscription in NAME[@TOPIC], in both of which an @ may be: the longest of
        which something is known."""
        names = [text, *(text[:at] for at in range(len(text) - 1, 0, -1) if text[at] == "@")]
        known = set[str]()
        for part in plan(self._path, Scope(includes_body=False)):
            for batch in read_part(part, Scope(includes_body=False), _SUBSCRIPTIONS):
                for event in batch:
                    known.update((event.subscription or "", *(event.subscriptions or ())))
        return next((name for name in names if name in known), names[min(1, len(names) - 1)])

    def _is_before_all(self) -> bool:
        """Nothing at all had happened by then, anywhere."""
        scope = Scope(until_ms=self._until_ms, includes_body=False)
        return not any(
            batch for part in plan(self._path, scope) for batch in read_part(part, scope, _PLAIN)
        )


def _place_of(place: str) -> tuple[str, str, str]:
    """Kind and name of the destination, "" for any, and the subscription."""
    kind, _, name = place.partition(":")
    if kind == "queue" and name:
        return "queue", name, ""
    if kind == "subscription" and name:
        return "topic", "", name
    if kind == "retained":
        raise NotSupported(
            feature="what was retained at a moment of the past", instead="Export it as it is now."
        )
    detail = f"{place!r} is neither queue:NAME nor subscription:NAME[@TOPIC]"
    raise InvalidArgument(what="place", detail=detail)


def _time_of(at: str) -> int:
    try:
        datetime.fromisoformat(at)
    except ValueError as fault:
        detail = f"{at!r} is neither an LSN nor a time such as 2026-05-01T08:00"
        raise InvalidArgument(what="at", detail=detail) from fault
    return parse_time_ms(at)


def _kind_of(event: Event) -> int:
    return KINDS.index(event.kind) if event.kind in KINDS else 0


def _message(event: Event, deliveries: int) -> Any:
    from hms.client.destinations import Queue  # noqa: PLC0415 - loads the client
    from hms.client.message import Message  # noqa: PLC0415 - the same

    head, body = event.head or b"", event.body or b""
    row = DeliveredRow(
        int(event.message_id, 16),
        event.timestamp or 0,
        event.expiration or 0,
        deliveries,
        len(head),
        len(body),
        event.priority or 0,
        _kind_of(event),
        0,
    )
    return Message.received(row, head, body, Queue("place"))
