"""An engine with one client and its log in a list; crash() builds it anew from the list."""

from hms.engine.effects import Browsed, Deliver, Effects
from hms.engine.engine import ConsumerRequest, Engine
from hms.engine.settings import (
    DestinationSettings,
    EngineSettings,
    SubscriptionSettings,
)
from hms.wire.packed_messages import ROW, Head, encode_head, pack_messages

DESTINATIONS = (
    DestinationSettings("queue", "orders"),
    DestinationSettings("queue", "slow", redelivery_delay_ms=1000),
    DestinationSettings("topic", "news", redelivery_limit=1),
)


OLDEST_FIRST = (True, 0, 1000)
"""And from the beginning, up to so many."""


class EngineRig:
    """Session 1 acknowledges by call, session 2 is transacted; producers 1 orders, 2 news, 3 slow;
    11 to 13 the same in session 2."""

    def __init__(self, subscriptions=(), is_warm=None, **limits):
        self.log = []
        self.now_ms = 1000
        self.limits = limits
        self.sequence = 0
        self.start(subscriptions, is_warm)

    def start(self, subscriptions=(), is_warm=None):
        """Boot from the log."""
        wanted = tuple(SubscriptionSettings(*s) for s in subscriptions)
        own = {"destinations": DESTINATIONS, "subscriptions": wanted} | self.limits
        settings = EngineSettings(**own)
        self.engine = Engine(settings)
        recovery = self.engine.recovery()
        for kind, payload in self.log:
            recovery.apply(kind, payload)
        recovery.finish()
        self.run(lambda fx: self.engine.boot(self.now_ms, is_warm, "test", fx))
        self.booted_at = len(self.log)
        self.engine.open_connection(1, 77, "", "")
        for session, kind in ((1, ""), (2, "transacted")):
            self.engine.open_session(1, session, 2 if session == 1 else 0, kind)
            for n, (what, name) in enumerate(
                (("queue", "orders"), ("topic", "news"), ("queue", "slow")), 1
            ):
                self.engine.open_producer(1, (session - 1) * 10 + n, session, what, name)

    def run(self, call):
        """Effects of a call; its records go to the log."""
        fx = Effects()
        call(fx)
        self.log += [(record.type, b"".join(record.parts)) for record in fx.records]
        return fx

    def send(
        self,
        producer=1,
        count=1,
        body=b"x",
        properties=None,
        is_persistent=True,
        connection=1,
        priority=4,
    ):
        """One batch."""
        self.sequence += count
        head = encode_head(Head(properties or {}))
        row = ROW.pack(len(head), len(body), 0, 0, priority, 0, 0, 0)
        pack = memoryview(pack_messages([(row, head, body)] * count))
        first = self.sequence
        self.sequence += count
        return self.run(
            lambda fx: self.engine.send(
                connection, 5, producer, first, count, is_persistent, pack, self.now_ms, fx
            )
        )

    def consume(self, handle, destination="orders", session=1, credit=100, **options):
        """Open a consumer; the messages that it gets at once."""
        kind = "topic" if destination == "news" else "queue"
        request = ConsumerRequest(handle, session, kind, destination, credit, **options)
        return delivered(
            self.run(lambda fx: self.engine.open_consumer(1, request, 1, self.now_ms, fx))
        )

    def acknowledge(self, handle, messages):
        """Acknowledge deliveries of a consumer in its first epoch."""
        spans = [(m.id, m.id) for m in messages]
        return self.run(lambda fx: self.engine.acknowledge(1, handle, 0, spans, self.now_ms, fx))

    def browse(self, queue="orders"):
        """One page."""
        fx = self.run(lambda fx: self.engine.browse(1, 1, queue, "", *OLDEST_FIRST, fx))
        (page,) = [effect for effect in fx.out if isinstance(effect, Browsed)]
        return page


def delivered(fx):
    """All messages that effects deliver, in order."""
    return [m for effect in fx.out if isinstance(effect, Deliver) for m in effect.messages]
