"""Session members: the producers, consumers, subscribers and browsers of a session."""

import math
from typing import Any, Generic, TypeVar

from hms.client.browse_pages import BrowsePages
from hms.client.core.arguments import (
    TEXT_CHARACTERS_MAX,
    check_flag,
    check_maybe_text,
    check_number,
    check_seconds,
    check_text,
    check_word,
)
from hms.client.core.requests import Requests
from hms.client.destinations import (
    Destination,
    Queue,
    Topic,
    check_retain,
    parse_destination,
    topic_of,
)
from hms.client.kept_producers import KeptProducers
from hms.client.member_defaults import with_defaults
from hms.client.opening_steps import Opening, open_prefetch_buffer, open_sender
from hms.client.pending_sends import SendOptions
from hms.client.prefetch_buffer import PrefetchBuffer
from hms.client.producer_steps import ProducerSteps
from hms.client.send_buffer import Sender
from hms.client.send_options import send_options
from hms.client.session_state import SessionState
from hms.client.session_steps import SCHEMES, SessionSteps
from hms.errors.catalogue import IllegalState, InvalidArgument
from hms.wire.structures import Limits, OpenConsumer

PREFETCH = 1000
DELAY_MS_MAX = 0xFFFF_FFFF
PREFETCH_MAX = 0xFFFF_FFFF
PREFETCH_BYTES_MAX = 1 << 62
_RETAINED = ("ALL", "NEW", "REQUEST")

_P = TypeVar("_P", bound=ProducerSteps)
_C = TypeVar("_C")
_B = TypeVar("_B")

_PRIORITIES = -128, 127
"""Of consumers."""


class SessionMembers(SessionSteps, Generic[_P, _C, _B]):
    """What a session makes; a Session, of threads or of asyncio, is one of these."""

    def __init__(self, requests: Requests, state: SessionState, *, is_asynchronous: bool) -> None:
        super().__init__(requests, state, is_asynchronous=is_asynchronous)
        self._kept: KeptProducers[_P] = KeptProducers()

    def _producer_to(self, dest: Destination | str) -> _P:
        """The producer with which send() sends there."""
        destination = parse_destination(dest)
        return self._kept.find(destination, lambda: self.producer(destination))

    @with_defaults("producer")
    def producer(
        self,
        dest: Destination | str,
        *,
        persistent: bool = True,
        ttl_s: float = 0,
        priority: int = 4,
        delay_s: float = 0,
        name: str = "",
        retain: bool = False,
        compress: bool | str = False,
    ) -> _P:
        """A producer for a queue or topic.

        persistent: whether its messages survive a crash of the node; ttl_s: seconds until a message
        expires, 0 for never; priority: 0 to 9, the highest is delivered first; delay_s: seconds
        until a message can be delivered (F-D4); name: what operators see it by; retain: the
        topic keeps the last message for later subscribers; compress: compress bodies with "zlib"
        (True) or "zstd" (F-D7). DestinationNotFound.
        """
        destination = parse_destination(dest)
        check_text("name", name)
        if check_flag("retain", retain):
            check_retain(destination)
        options = send_options(
            persistent=persistent,
            ttl_s=ttl_s,
            priority=priority,
            retain=retain,
            delay_s=delay_s,
            compress=compress,
        )
        with self.requests.driver.lock:
            self.check_open()
            sender, opening = open_sender(self.requests.link, self.state, destination, name)
            self.requests.driver.flush()
        return self._producer(sender, options, opening)

    @with_defaults("consumer")
    def consumer(
        self,
        dest: Destination | str,
        *,
        selector: str | None = None,
        prefetch: int = PREFETCH,
        name: str = "",
        listener: str | None = None,
        redelivery_delay_s: float = 0,
        ordered: bool = False,
        prefetch_bytes: int | None = None,
        priority: int = 0,
    ) -> _C:
        """A consumer of a queue, or a non-durable subscriber of a topic.

        selector: only messages that fit it; prefetch, prefetch_bytes: the most messages, and the
        most bytes of them, that the node sends before they are received, at least one message;
        name: what operators see it by; listener: the service that is called for every message,
        in an asynchronous session; redelivery_delay_s: seconds before a message that failed here is
        delivered again; ordered: a message that failed in listen() is delivered again before those
        that were prefetched behind it; priority: -128 to 127, the consumer with the highest is
        served first, as far as its prefetch goes. SelectorSyntaxError, DestinationNotFound.
        """
        options = _named(name, selector, listener)
        options |= _redelivery(redelivery_delay_s, is_ordered=check_flag("ordered", ordered))
        options["priority"] = check_number("priority", priority, *_PRIORITIES)
        return self._consume(parse_destination(dest), prefetch, prefetch_bytes, ordered, options)

    @with_defaults("consumer")
    def subscriber(
        self,
        topic: Topic | str,
        *,
        durable: str | None = None,
        shared: bool = False,
        selector: str | None = None,
        no_local: bool = False,
        prefetch: int = PREFETCH,
        name: str = "",
        listener: str | None = None,
        redelivery_delay_s: float = 0,
        ordered: bool = False,
        scheme: str = "TOPIC",
        retained: str = "ALL",
        life_s: float = 0,
        into: Queue | str | None = None,
        correlation_id: str = "",
        prefetch_bytes: int | None = None,
        priority: int = 0,
    ) -> _C:
        """A subscriber of a topic; what is not named here is as of consumer().

        durable: the name of a subscription that outlives the subscriber; shared: other subscribers
        may share that subscription, or with `name` one that is not durable (F-E6); no_local:
        without what this connection and others of its client id publish, for a durable one also
        while it is closed; scheme: TOPIC with wildcards + and #, or CHARACTER with * and ?;
        retained: ALL, only NEW publications, or by REQUEST; life_s: seconds that a durable
        subscription lives, 0 without end; into: a queue that gets the messages
        instead of this subscriber; correlation_id: what they carry there. DurableNameInUse,
        TopicStringError.
        """
        destination = topic_of(topic) if isinstance(topic, str) else topic
        if not isinstance(destination, Topic):
            raise InvalidArgument(what="subscriber()", detail=f"{destination} is not a topic")
        options = _named(name, selector, listener)
        options["durable"] = "" if durable is None else check_text("durable", durable, least=1)
        options["is_no_local"] = check_flag("no_local", no_local)
        options["is_shared"] = check_flag("shared", shared)
        options |= _redelivery(redelivery_delay_s, is_ordered=check_flag("ordered", ordered))
        options["priority"] = check_number("priority", priority, *_PRIORITIES)
        options["scheme"] = check_word("scheme", scheme, SCHEMES)
        options["retained"] = check_word("retained", retained, _RETAINED)
        options["life_ms"] = math.ceil(check_seconds("life_s", life_s) * 1000)
        options["queue"] = _queue_name(into)
        options["correlation_id"] = check_text("correlation_id", correlation_id)
        return self._consume(destination, prefetch, prefetch_bytes, ordered, options)

    def topic(self, string: str) -> Topic:
        """A topic by its topic string, with wildcards where it is to be subscribed to."""
        return topic_of(string)

    def _consume(
        self,
        destination: Destination,
        prefetch: int,
        prefetch_bytes: int | None,
        ordered: bool,
        options: dict[str, Any],
    ) -> _C:
        """A consumer; options: the further fields of OpenConsumer."""
        check_number("prefetch", prefetch, 0, PREFETCH_MAX)
        if bool(options["listener"]) is not self.is_asynchronous:
            detail = "a listener service needs session(asynchronous=True)"
            if self.is_asynchronous:
                detail = (
                    "an asynchronous session gives its messages to a service: name it, as in "
                    'consumer(queue, listener="SERVICE"), or open the session without '
                    "asynchronous=True for receive() and listen()"
                )
            raise IllegalState(what="consumer()", detail=detail)
        link = self.requests.link
        with self.requests.driver.lock:
            self.check_open()
            credit = max(1, min(prefetch, link.limits.prefetch_max))
            number, kind, name = link.new_handle(), destination.kind, destination.name
            options["topic"] = destination.string
            options["credit_bytes"] = _window_bytes(prefetch_bytes, link.limits)
            request = OpenConsumer(number, self.state.number, kind, name, credit, **options)
            prefetched, opening = open_prefetch_buffer(
                link, self.state, request, destination, self, is_ordered=ordered
            )
            self.requests.driver.flush()
        return self._consumer(prefetched, opening)

    def browser(
        self,
        queue: Queue | str,
        selector: str | None = None,
        oldest_first: bool = False,
        *,
        in_flight: bool = False,
    ) -> _B:
        """Look at the waiting messages of a queue without taking any; newest first (F-G1).

        in_flight: also at those that consumers have and have not settled; their `is_in_flight` is
        True.
        """
        destination = parse_destination(queue)
        if not isinstance(destination, Queue):
            raise InvalidArgument(what="browser()", detail=f"{destination} is not a queue")
        wanted = check_maybe_text("selector", selector, TEXT_CHARACTERS_MAX)
        check_flag("oldest_first", oldest_first)
        check_flag("in_flight", in_flight)
        with self.requests.driver.lock:
            self.check_open()
            pages = BrowsePages(
                self, destination, wanted, is_oldest_first=oldest_first, is_in_flight=in_flight
            )
            self.requests.driver.flush()
        return self._browser(pages)

    # ---- what a shell makes of it

    def _producer(self, sender: Sender, options: SendOptions, opening: Opening) -> _P:
        raise NotImplementedError

    def _consumer(self, prefetched: PrefetchBuffer, opening: Opening) -> _C:
        raise NotImplementedError

    def _browser(self, pages: BrowsePages) -> _B:
        raise NotImplementedError


def _queue_name(into: Queue | str | None) -> str:
    target = parse_destination(into) if into is not None else None
    if isinstance(target, Topic):
        raise InvalidArgument(what="into", detail=f"{target} is not a queue")
    return target.name if target is not None else ""


def _window_bytes(prefetch_bytes: int | None, limits: Limits) -> int:
    """Of a consumer; 0 at a node that counts messages alone."""
    wanted = limits.prefetch_bytes
    if prefetch_bytes is not None:
        wanted = max(1, check_number("prefetch_bytes", prefetch_bytes, 0, PREFETCH_BYTES_MAX))
    return min(wanted, limits.prefetch_bytes_max)


def _named(name: str, selector: str | None, listener: str | None) -> dict[str, Any]:
    return {
        "name": check_text("name", name),
        "selector": check_maybe_text("selector", selector, TEXT_CHARACTERS_MAX),
        "listener": check_maybe_text("listener", listener),
    }


def _redelivery(delay_s: float, *, is_ordered: bool) -> dict[str, Any]:
    most_s = DELAY_MS_MAX // 1000
    delay_ms = math.ceil(check_seconds("redelivery_delay_s", delay_s, most=most_s) * 1000)
    if delay_ms and is_ordered:
        detail = "what is behind a message that waits for its time would overtake it"
        raise InvalidArgument(what="ordered and redelivery_delay_s", detail=detail)
    return {"redelivery_delay_ms": delay_ms}
