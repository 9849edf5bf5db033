"""More sends: files before their messages, and messages that the node sends again and again."""

from collections.abc import Mapping
from typing import Any

from hms.client.core.operations import Steps
from hms.client.core.pending_requests import OnLoss, Pending
from hms.client.core.requests import Requests
from hms.client.file_transfers import uploading
from hms.client.message import Message
from hms.client.opening_steps import node_now_ms
from hms.client.pack_building import Body, as_message
from hms.client.pending_sends import Encoded, Outcome, PendingSend, SendOptions
from hms.client.receipt import Receipt
from hms.client.schedules import Recurrence, Schedule, schedule_head, schedule_of
from hms.client.send_buffer import Sender
from hms.client.send_options import SendHow
from hms.errors.catalogue import InvalidArgument, RequestTimeout, TpConnectionClosed
from hms.wire.frames import Kind
from hms.wire.packed_messages import pack_messages
from hms.wire.structures import encode_with_body


class MoreSends:
    """What ProducerSteps has of these."""

    _connection: Requests
    _options: SendOptions
    _sender: Sender

    def check_open(self) -> None:
        """ConnectionClosed, what the node refused it with, or what the connection ended with."""
        raise NotImplementedError

    def prepared(
        self,
        body: Body,
        properties: Mapping[str, Any] | None,
        how: SendHow,
        future: Outcome | None = None,
    ) -> tuple[Encoded, PendingSend]:
        """A message, encoded, and its ticket."""
        raise NotImplementedError

    def sending(self, encoded: Encoded, ticket: PendingSend) -> Steps[Receipt]:
        """Send and wait until the node has it."""
        raise NotImplementedError

    def _next_request(self) -> tuple[int, int]:
        """A number for a schedule, so that the node knows it again after a lost connection."""
        handle, last = getattr(self, "_requests", None) or (self._connection.link.new_handle(), 0)
        self._requests = handle, last + 1
        return self._requests

    def _with(self, how: SendHow) -> SendOptions:
        raise NotImplementedError

    def sending_file(
        self, message: Message, properties: Mapping[str, Any] | None, how: SendHow
    ) -> Steps[Receipt]:
        """Send the file, then its message, which is persistent in any case."""
        self.check_open()
        upload = message.upload
        if upload is not None:
            message.uploaded((yield from uploading(self._connection, upload)))
        encoded, ticket = self.prepared(message, properties, how | {"persistent": True})
        return (yield from self.sending(encoded, ticket))

    def scheduling(
        self,
        name: str,
        body: Body,
        properties: Mapping[str, Any] | None,
        how: SendHow,
        recurrence: Recurrence,
    ) -> Steps[Schedule]:
        """Have the node send a message again and again; asked twice, it is the same schedule. What
        nobody answered may be there: SendInDoubt."""
        self.check_open()
        options = self._with(how) if how else self._options
        if options.delay_ms:
            detail = "a schedule says itself when its messages are due"
            raise InvalidArgument(what="delay_s", detail=detail)
        message = as_message(body, properties)
        _, ttl_ms, priority, flags, _, codec = options
        encoded = message.encode(ttl_ms, 0, priority, flags, codec)
        link = self._connection.link
        now_ms, number = node_now_ms(link), self._sender.number
        head = schedule_head(number, name, recurrence, options, now_ms, self._next_request())
        pending = Pending("Schedule", OnLoss.REPEAT, error_if_strange=self._sender.in_doubt(1))
        link.ask(Kind.SCHEDULE, encode_with_body(head, pack_messages([encoded])), pending)
        try:
            yield from self._connection.answer_to(pending)
        except (RequestTimeout, TpConnectionClosed) as late:
            if pending.is_answered or not pending.is_written:
                raise
            raise self._sender.in_doubt_after(1, late) from None
        return schedule_of(pending.value())
