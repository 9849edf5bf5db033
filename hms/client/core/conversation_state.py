"""Conversation state: one side of a conversation, the same for client and server. No socket, thread
or clock.

Half duplex: one side has control and speaks; with its last words it hands control over. Each side
may have WINDOW parts on the way that the other has not taken yet, so neither can flood the other. A
client begins with none: the service grants them when it begins. The service's result ends it.

    state of a side     it may
    in control          send; hand control over with a part
    listening           receive
    ended (event)       receive what came before the end, then see the event
"""

from collections import deque
from typing import NamedTuple, Protocol

from hms.client.core.operations import Steps, Wait
from hms.errors.catalogue import ConversationProtocol, RequestTimeout
from hms.errors.tree import HmsError
from hms.wire.frames import Kind
from hms.wire.packed_messages import KIND_NONE
from hms.wire.service_codes import TPEV_DISCONIMM, TPEV_SVCERR
from hms.wire.structures import TalkHead, encode_with_body

__all__ = ["DATA", "DISCONNECTED", "ROOM", "ConversationState", "Part"]

DATA, ROOM, DISCONNECTED = 0, 1, 2
WINDOW = 32


class Part(NamedTuple):
    """What was said."""

    kind: int = KIND_NONE
    data: bytes = b""
    gives_control: bool = False


class Outbox(Protocol):
    """What it needs of the link."""

    def tell(self, kind: Kind, payload: bytes = b"", count: int = 1) -> None:
        """Send without expecting an answer."""


class ConversationState:
    """See the module. number: of the call, as the node knows it on this connection; event: how it
    ended, 0 while it goes on; last: what it ended with."""

    def __init__(self, link: Outbox, number: int, *, is_server: bool, has_control: bool) -> None:
        self.number = number
        self.is_server = is_server
        self.has_control = has_control
        self.is_begun = is_server
        self.event = 0
        self.rcode = 0
        self.last = Part()
        self.error: HmsError | None = None
        self._link = link
        self._parts: deque[Part] = deque()
        self._room = WINDOW if is_server else 0
        self._taken = 0

    # ---- what comes in

    def arrived(self, head: TalkHead, data: bytes) -> None:
        """A part, room for more, or the end, from the other side."""
        if head.what == ROOM:
            self.is_begun = True
            self._room += head.count
        elif head.what == DISCONNECTED:
            self.ended(TPEV_DISCONIMM)
        elif len(self._parts) >= WINDOW:
            self.disconnect()  # it breaks the rules, and might as well flood us
        elif not self.event:
            self._parts.append(Part(head.kind, data, head.gives_control))

    def ended(self, event: int, last: Part = Part(), error: HmsError | None = None) -> None:  # noqa: B008 - immutable
        """Nothing comes behind this."""
        if not self.event:
            self.event, self.last, self.error = event, last, error

    def lost(self, error: HmsError) -> None:
        """The connection is lost."""
        self.ended(TPEV_SVCERR if not self.is_server else TPEV_DISCONIMM, error=error)

    # ---- what goes out

    def begin(self) -> None:
        """The service takes it up: its client may speak."""
        self._tell(TalkHead(self.number, ROOM, count=WINDOW))

    def disconnect(self) -> None:
        """Leave without ceremony."""
        if not self.event:
            self._tell(TalkHead(self.number, DISCONNECTED))
            self.ended(TPEV_DISCONIMM)

    def sending(self, part: Part, deadline: float, *, may_wait: bool = True) -> Steps[int]:
        """Say something; the event if it is over, else 0. ConversationProtocol, RequestTimeout."""
        if not self.event and not self.has_control:
            raise ConversationProtocol(what="tpsend()", detail="the other side has control")
        if not may_wait:
            deadline = 0.0
        if not (yield Wait(self, lambda: self.event or self._room, deadline)):
            raise RequestTimeout(what="tpsend()", timeout_s=0)
        if self.event:
            return self.event
        self._room -= 1
        self.has_control = not part.gives_control
        self._tell(TalkHead(self.number, DATA, part.kind, part.gives_control), part.data)
        return 0

    def receiving(self, deadline: float) -> Steps[tuple[int, Part] | None]:
        """What the other side says, or the event that ended it and its last data; None when
        nothing came in time. ConversationProtocol."""
        if self.has_control and not (self._parts or self.event):
            raise ConversationProtocol(what="tprecv()", detail="this side has control: tpsend()")
        if not (yield Wait(self, lambda: self._parts or self.event, deadline)):
            return None
        if not self._parts:
            return self.event, self.last
        part = self._parts.popleft()
        self.has_control = self.has_control or part.gives_control
        self._taken += 1
        if self._taken >= WINDOW // 2 and not self.event:
            self._tell(TalkHead(self.number, ROOM, count=self._taken))
            self._taken = 0
        return 0, part

    def awaiting_control(self, deadline: float) -> Steps[bool]:
        """Wait until this side may speak, though it has not heard all yet; False: not in time."""

        def is_given() -> bool:
            return bool(self.has_control or self.event or any(p.gives_control for p in self._parts))

        if not (yield Wait(self, is_given, deadline)):
            return False
        if not self.has_control and not self.event:
            self.has_control = True
            self._parts = deque(part._replace(gives_control=False) for part in self._parts)
        return True

    def _tell(self, head: TalkHead, data: bytes = b"") -> None:
        to = TalkHead(
            head.call, head.what, head.kind, head.gives_control, head.count, self.is_server
        )
        self._link.tell(Kind.TALK, encode_with_body(to, data))
