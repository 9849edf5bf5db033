"""A node with a past, for tests of replay: what was sent, and what is where now."""

import shutil
from typing import Any, NamedTuple

import hms
from hms.history.scan import plan, read_part
from hms.history.scope import parse_scope
from hms.wire.packed_messages import decode_head

COUNT = 300
QUEUES = (
    "again",
    "other",
    "twice",
    "ended",
    "anew",
    "loop",
    "mine",
    "files",
    "re.files",
    "here",
    "there",
)
FLIGHTS = ("flights.a", "flights.b")


class Told(NamedTuple):
    """A message as the history tells it; content: all that must be the same in a copy."""

    offset: int
    message_id: str
    content: tuple[Any, ...]
    properties: dict[str, Any]
    node: dict[str, Any]


def rig_config():
    """The configuration of the node."""
    names = ("orders", *QUEUES, *FLIGHTS, *(f"re.{name}" for name in FLIGHTS))
    queues = {name: {} for name in names}
    return {"hms": {"queue": {**queues, "small": {"max_messages": 120}}}}


class Rig:
    """See the module."""

    def __init__(self, node):
        self.node = node

    def send_and_handle(self):
        """Orders that a consumer handled, flights in two queues, and a loop of five."""
        with hms.connect(self.node.address) as connection, connection.session() as own:
            with own.producer(hms.Queue("orders")) as producer:
                for i in range(COUNT):
                    body = hms.Message.text(
                        f"order {i}", {"n": i, "half": i / 2, "odd": bool(i % 2)}
                    )
                    body.correlation_id = f"c{i}"
                    producer.send_async(body, priority=i % 10)
            consumer = own.consumer(hms.Queue("orders"))
            for _ in range(COUNT):
                assert consumer.receive(timeout_s=60) is not None
            for i in range(30):
                for name in FLIGHTS:
                    own.producer(hms.Queue(name)).send(f"{name} {i}", {"n": i})
            own.producer(hms.Queue("loop")).send_many([hms.Message(b"loop")] * 5)

    def sent_to(self, name):
        """What was sent to a queue, in the order of the log."""
        scope = parse_scope({"destination": f"queue:{name}", "view": "messages"})
        events = [
            event
            for part in plan(self.node.store, scope)
            for batch in read_part(part, scope, ("head", "body"))
            for event in batch
        ]
        return [_told(event) for event in events]

    def receive(self, name):
        """The next message of a queue."""
        with hms.connect(self.node.address) as connection, connection.session() as own:
            message = own.consumer(hms.Queue(name)).receive(timeout_s=60)
            assert message is not None
            message.properties  # noqa: B018 - decoded while it is there
            return message

    def waiting(self, name):
        """How many messages wait in a queue."""
        with hms.connect(self.node.address) as connection:
            return connection.administer("queue.show", {"name": name})["waiting"]

    def drain(self, name):
        """All messages of a queue, in their order."""
        count = self.waiting(name)
        with hms.connect(self.node.address) as connection, connection.session() as own:
            consumer = own.consumer(hms.Queue(name))
            return [consumer.receive(timeout_s=60) for _ in range(count)]

    def copy_of_the_store(self, folder):
        """The store as it is now."""
        return shutil.copytree(self.node.store, folder / "store")


def _told(event):
    head = decode_head(event.head)
    own = (head.properties, head.types, head.correlation_id, head.reply_to, head.type)
    content = (own, event.body, event.kind, event.priority)
    return Told(event.offset, event.message_id, content, head.properties, head.node)
