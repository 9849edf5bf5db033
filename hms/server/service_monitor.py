"""What the node needs of the monitor of services: which server runs which call.

The monitor stands above the node, in tpmon.scheduling. It does nothing itself: what it wants done
it leaves in `effects`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import msgspec

from hms.wire.structures import CallHead, InvokeHead, ResultHead, TalkHead

Grant = Callable[[int, int, int], int | None]
"""Set a consumer's credit; how many messages it is given now, None when it is there no more."""


class Verdict:
    """What a result says of a listener's message, besides TPSUCCESS and TPFAIL."""

    NONE = 0
    REJECTED = 1  # a dead letter at once
    RETRY = 2  # a failed attempt, tried again after a delay
    RELEASED = 3  # the node's own: no server ever saw it


class Origin(msgspec.Struct, frozen=True):
    """Who asked: a client's CALL, or a listener (then session is set, correlation unused). user:
    whose CALL it is, at a node that checks logins."""

    connection: int
    correlation: int = 0
    session: int = 0
    token: object = None
    consumer: int = 0
    user: str = ""


class Listener(NamedTuple):
    """A consumer whose messages go to a service. place: "queue:NAME" or "topic:NAME"."""

    connection: int
    consumer: int
    session: int
    service: str
    place: str


class Invoke(msgspec.Struct, frozen=True, gc=False):
    """Effect: run this call on that server."""

    connection: int
    head: InvokeHead
    data: bytes


class Answer(msgspec.Struct, frozen=True, gc=False):
    """Effect: the call of that origin ended."""

    origin: Origin
    head: ResultHead
    data: bytes


class Say(msgspec.Struct, frozen=True, gc=False):
    """Effect: a part of a conversation for that connection."""

    connection: int
    head: TalkHead
    data: bytes


class Kill(msgspec.Struct, frozen=True, gc=False):
    """Effect: end the process of that name, "NAME:pid"; its service ran too long."""

    name: str


class Load(NamedTuple):
    """How busy the connected processes of one [server.NAME] are; waiting counts calls."""

    name: str
    servers: int
    busy: int
    waiting: int


@dataclass(slots=True)
class Times:
    """The monitor's time, as it was last told; due_ms: when it wants tick(), None: whenever."""

    now_ms: int = 0
    due_ms: int | None = None


class ServiceMonitor(Protocol):
    """Services, servers, calls and listeners of one node; every call is made under the engine's
    lock."""

    @property
    def effects(self) -> list[Any]:
        """Invoke, Answer, Say and Kill, in order; the caller that does them empties the list."""

    @property
    def changed(self) -> set[str]:
        """Services whose listeners may be given messages now."""

    @property
    def times(self) -> Times:
        """What it knows of time."""

    def number_from(self, first_call: int) -> None:
        """At boot: the number of the first call."""

    @property
    def bytes_waiting(self) -> int:
        """What calls hold that nobody runs yet."""

    # servers

    def introduce(self, connection: int, name: str) -> None:
        """A server process says its name, "NAME:pid"."""

    def advertise(
        self, connection: int, service: str, signature: str = "", places: int = 1
    ) -> None:
        """A connection offers a service; ServiceMismatch, InvalidArgument."""

    def unadvertise(self, connection: int, service: str, *, is_expected: bool = False) -> None:
        """It does so no longer; is_expected: another one follows."""

    def lost(self, connection: int) -> None:
        """A connection is gone, with what it ran and what it asked."""

    def services_of(self, connection: int) -> list[str]:
        """What a connection offers."""

    def group_of(self, connection: int) -> str:
        """The [server.NAME] that a connection was started for."""

    def connections_of(self, name: str) -> list[int]:
        """Those of a server process."""

    def load(self) -> list[Load]:
        """How busy the server processes are."""

    # calls

    def begins(self) -> None:
        """The node starts its servers: a call of what nobody offers yet waits."""

    def begun(self) -> None:
        """They are there, or cannot be."""

    def calls_of(self, connection: int) -> int:
        """How many calls of a connection have not ended, conversations too."""

    def call(self, origin: Origin, head: CallHead, data: bytes, now_ms: int) -> None:
        """A client's CALL; ServiceNotFound."""

    def result(self, connection: int, head: ResultHead, data: bytes, now_ms: int = 0) -> None:
        """A server's RESULT."""

    def talk(self, connection: int, head: TalkHead, data: bytes) -> None:
        """A part of a conversation."""

    def tick(self, now_ms: int, comes_back: Callable[[str], bool]) -> None:
        """Deadlines. comes_back: whether the node starts a process of that [server.NAME] again."""

    def release_orphans(self) -> None:
        """Listener calls of services that nobody offers go back."""

    # listeners

    def listen_at(self, listener: Listener) -> None:
        """A listener's consumer was opened."""

    def listen(self, origin: Origin, head: InvokeHead, data: bytes, expires_at_ms: int = 0) -> None:
        """A message for a listener."""

    def feed(self, grant: Grant) -> None:
        """Let listeners have messages for which there are free servers."""

    def settled(self, connection: int, consumer: int) -> None:
        """A listener's message is settled."""

    def closed(self, connection: int, session: int = 0, consumer: int = 0) -> None:
        """Listeners are gone: a consumer's, or those of a session."""

    def recovered(self, connection: int, session: int) -> None:
        """A session took back what was not settled."""

    def running_of(self, connection: int, session: int = 0, consumer: int = 0) -> list[object]:
        """Tokens of the messages that servers have right now."""

    def message_of(self, connection: int, number: int) -> object:
        """The token of the message that a server's call is."""

    # operators

    def describe(self) -> list[dict[str, Any]]:
        """The services."""

    def durations(self) -> dict[str, dict[str, Any]]:
        """How long the calls of each service ran, as histograms."""

    def server_durations(self) -> dict[str, dict[str, Any]]:
        """The same of each [server.NAME]."""

    def describe_groups(self) -> dict[str, dict[str, Any]]:
        """The server processes, by [server.NAME]."""

    def describe_absent(self) -> dict[str, Any]:
        """The same figures for one that has no process."""

    def listeners_missing(self) -> list[dict[str, str]]:
        """Listeners whose service nobody offers."""
