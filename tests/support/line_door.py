"""A second door, as small as one can be: lines of text. The broker knows no protocol.

    CONNECT name                   WELCOME node
    SESSION s                      OK line
    PRODUCER p s queue             OK line
    CONSUMER c s queue credit      OK line
    SEND p text                    STORED line id
    ACK c id                       OK line
    BYE                            MESSAGE c id text · ERROR line number · GOODBYE number

`line` is the number of the line that is answered.
"""

from itertools import count

from hms.engine.effects import Confirm, Reply
from hms.errors.catalogue import ProtocolError
from hms.errors.tree import HmsError
from hms.server.doors.door import Words
from hms.wire import structures as wire
from hms.wire.frames import Action, Envelope, Kind, SendHead, Settlement
from hms.wire.packed_messages import ROW, pack_messages

KINDS = {"CONNECT": Kind.HELLO, "SEND": Kind.SEND, "ACK": Kind.SETTLE, "BYE": Kind.GOODBYE}
CLIENT_ACK = 2


class LineDoor:
    """Of one connection: lines are counted, and so are the messages of each producer."""

    def __init__(self):
        self._buffer = b""
        self._lines = count(1)
        self._sequences = {}

    def receive(self, data):
        """What a listener does with bytes: whole lines, and of which kind each is."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return [(self._envelope(line), line) for line in lines]

    def _envelope(self, line):
        kind = KINDS.get(line.split(b" ", 1)[0].decode(), Kind.REQUEST)
        return Envelope(kind, next(self._lines), 1, len(line))

    def decode(self, envelope, payload):
        """The command of a line."""
        verb, *words = payload.decode().split(" ")
        try:
            return envelope, *getattr(self, f"_{verb.lower()}")(*words)
        except (AttributeError, TypeError, ValueError):
            return envelope, ProtocolError(detail=f"not understood: {payload!r}"), b""

    def _connect(self, name):
        return wire.Hello(0, client_name=name), b""

    def _session(self, session):
        return wire.OpenSession(int(session), CLIENT_ACK), b""

    def _producer(self, producer, session, queue):
        return wire.OpenProducer(int(producer), int(session), "queue", queue), b""

    def _consumer(self, consumer, session, queue, credit):
        asked = int(consumer), int(session), "queue", queue, int(credit)
        return wire.OpenConsumer(*asked), b""

    def _send(self, producer, *text):
        sequence = self._sequences[producer] = self._sequences.get(producer, 0) + 1
        body = " ".join(text).encode()
        pack = pack_messages([(ROW.pack(0, len(body), 0, 0, 4, 0, 0, 0), b"", body)])
        return SendHead(int(producer), 1, sequence, is_persistent=True), pack

    def _ack(self, consumer, message_id):
        spans = [(int(message_id), int(message_id))]
        return [Settlement(Action.ACKNOWLEDGE, int(consumer), 0, 0, spans)], b""

    def _bye(self):
        return None, b""

    # what the node says

    def encode(self, effect, _payloads_of):
        """A line."""
        if isinstance(effect, Confirm):
            return _line("STORED", effect.correlation, effect.first_message_id)
        if isinstance(effect, Reply):
            return _line("OK", effect.correlation)
        if not isinstance(effect, Words):
            return _line("ERROR", effect.correlation, effect.error.number)
        if isinstance(effect.content, HmsError):
            return _line("GOODBYE", effect.content.number)
        return _line("WELCOME", effect.content.node)

    def deliver(self, effect, to, payloads_of):
        """A line for each message and consumer."""
        payloads = payloads_of(effect.messages)
        lines = [
            b"MESSAGE %d %d %s\n" % (consumer, message.id, payload[message.head_bytes :])
            for consumer, _ in to
            for message, payload in zip(effect.messages, payloads, strict=True)
        ]
        return [b"", b"".join(lines)]

    def forget(self):
        """Nothing is kept to be faster."""


def _line(*words):
    return [b"", " ".join(map(str, words)).encode() + b"\n"]
