"""Incoming calls: the calls, conversations and notices that come in over a link. No socket, no
thread."""

from collections.abc import Callable

from hms.client.core.conversation_state import ConversationState
from hms.errors.tree import HmsError
from hms.wire import structures
from hms.wire.frames import Kind
from hms.wire.structures import InvokeHead, NoticeHead, TalkHead


class IncomingCalls:
    """What a link has of them. woken: who is to be woken; calls: functions of the application that
    are to be run where they may block."""

    def __init__(self) -> None:
        self.woken: list[object] = []
        self.calls: list[Callable[[], object]] = []
        self.talks: dict[tuple[bool, int], ConversationState] = {}
        """Conversations: whether the other side is a server, and the number of the call."""
        self.on_notice: Callable[[NoticeHead, bytes], None] | None = None
        self.on_invoke: Callable[[InvokeHead, bytes], None] | None = None
        """Called as an INVOKE is taken in; it only notes it, and whom that wakes."""

    def tell(self, kind: Kind, payload: bytes = b"", count: int = 1) -> None:
        """Send without expecting an answer."""
        raise NotImplementedError

    def lose_talks(self, error: HmsError) -> None:
        """The connection is lost, and with it its conversations."""
        talks, self.talks = self.talks, {}
        for talk in talks.values():
            talk.lost(error)

    def serve(self, kind: Kind, payload: bytes) -> None:
        """Take in an INVOKE, TALK or NOTICE."""
        if kind is Kind.TALK:
            self._talk(*structures.decode_with_body(payload, TalkHead))
            return
        if kind is Kind.NOTICE:
            self._notice(*structures.decode_with_body(payload, NoticeHead))
            return
        head, data = structures.decode_with_body(payload, InvokeHead)
        if head.mode:
            has_control = head.mode == structures.SERVICE_SPEAKS
            talk = ConversationState(self, head.call, is_server=True, has_control=has_control)
            self.talks[False, head.call] = talk
        if self.on_invoke is not None:
            self.on_invoke(head, data)

    def _talk(self, head: TalkHead, data: bytes) -> None:
        talk = self.talks.get((head.is_from_server, head.call))
        if talk is not None:  # else it crossed the end
            talk.arrived(head, data)
            self.woken.append(talk)

    def _notice(self, head: NoticeHead, data: bytes) -> None:
        if self.on_notice is not None:
            handler = self.on_notice
            self.calls.append(lambda: handler(head, data))
