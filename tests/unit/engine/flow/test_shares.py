"""What clients have open and define is counted in bytes; one of them leaves some to others (P8)."""

import gc
import tracemalloc

import pytest

from hms.engine.engine import ConsumerRequest
from hms.engine.flow import shares as shares_module
from hms.engine.flow.shares import Share
from hms.errors.catalogue import ConsumerLimit, NodeFull, OpenMemoryLimit, TopicLimit
from hms.wire.commands import order
from tests.support.engine_rig import EngineRig

LONG = "x" * 10_000
TERMS = " OR ".join(f"a{n} = {n}" for n in range(20))


class Client:
    """A connection of its own with a session, which opens one thing after the other."""

    def __init__(self, rig, number, client_id=""):
        self.rig, self.number, self.handle = rig, number, 0
        rig.engine.open_connection(number, 1000 + number, client_id, "")
        rig.engine.open_session(number, 1, 2, "")

    @property
    def owner(self):
        return self.rig.engine.state.connections[self.number].owner

    def next(self):
        self.handle += 1
        return self.handle

    def produce(self, topic):
        args = (self.number, self.next(), 1, "topic", "", topic)
        self.rig.run(lambda fx: self.rig.engine.open_producer(*args, fx))

    def consume(self, **options):
        request = ConsumerRequest(self.next(), 1, credit=0, **options)
        now_ms = self.rig.now_ms
        self.rig.run(lambda fx: self.rig.engine.open_consumer(self.number, request, 1, now_ms, fx))

    def subscribe(self, topic="t", **options):
        self.consume(kind="topic", destination="", topic=topic, **options)

    def close(self):
        now_ms = self.rig.now_ms
        self.rig.run(lambda fx: self.rig.engine.close_connection(self.number, now_ms, fx))

    def administer(self, verb, **arguments):
        """As its request comes to the engine."""
        asked, now_ms = order(verb, arguments), self.rig.now_ms
        self.rig.run(lambda fx: self.rig.engine.operate(asked, now_ms, fx, self.number))


KINDS = {
    "producer of a queue": lambda c, _: c.rig.run(
        lambda fx: c.rig.engine.open_producer(c.number, c.next(), 1, "queue", "orders", "", fx)
    ),
    "producer": lambda c, _: c.produce("t"),
    "producer, new topic": lambda c, n: c.produce(f"t{n}"),
    "producer, long topic": lambda c, _: c.produce(LONG),
    "producer, wide topic": lambda c, _: c.produce("\U0001f600" + LONG),
    "producer, new long topic": lambda c, n: c.produce(f"{n}{LONG}"),
    "producer, many levels": lambda c, n: c.produce(f"{n}/" + "ab/" * 254),
    "consumer": lambda c, _: c.consume(kind="queue", destination="orders"),
    "consumer, selector": lambda c, n: c.consume(
        kind="queue", destination="orders", selector=f"{TERMS} OR b = {n}"
    ),
    "subscriber": lambda c, _: c.subscribe(),
    "subscriber, selector": lambda c, n: c.subscribe(selector=f"{TERMS} OR b = {n}"),
    "subscriber, LIKE": lambda c, n: c.subscribe(selector=f"a LIKE '{'%x' * 200}{n}'"),
    "subscriber, IN": lambda c, n: c.subscribe(
        selector="a IN (" + ",".join(f"'{n}{k}'" for k in range(200)) + ")"
    ),
    "subscriber, long topic": lambda c, n: c.subscribe(LONG + f"{n}"),
    "subscriber, many levels": lambda c, n: c.subscribe(f"{n}/" + "ab/" * 254),
    "subscriber, wildcards": lambda c, n: c.subscribe(f"{n}p/" + "#/ab/" * 127),
    "subscriber, CHARACTER": lambda c, n: c.subscribe(f"{n}*" + "a*" * 200, scheme="CHARACTER"),
    "durable": lambda c, n: c.subscribe(f"{n}{LONG}", durable=f"d{n}", selector="a = 1"),
    "queue": lambda c, n: c.administer("queue.create", name=f"q{n}" + "x" * 200),
    "topic": lambda c, n: c.administer("topic.create", name=f"t{n}"),
    "temporary": lambda c, _: c.rig.run(
        lambda fx: c.rig.engine.create_temporary(c.number, "queue", fx)
    ),
    "watch": lambda c, n: c.rig.engine.watch(c.number, "topic", f"{n}{LONG}"),
}
PASSING = [kind for kind in KINDS if kind not in ("durable", "queue", "topic", "temporary")]


@pytest.fixture
def free_bytes(monkeypatch):
    """A node for which 8 MiB would be much."""
    monkeypatch.setattr(shares_module, "MEMORY_BYTES_FREE", 1 << 16)
    return 1 << 16


def used(rig):
    shares = rig.engine.state.shares
    return shares.opened.used + shares.defined.used


def _of_the_engine():
    """Bytes that the engine's modules have asked for: in a long run of tests other threads live."""
    rooms = ("engine", "records", "wire")
    inside = [tracemalloc.Filter(inclusive=True, filename_pattern=f"*/hms/{r}/*") for r in rooms]
    found = tracemalloc.take_snapshot().filter_traces(inside)
    return sum(one.size for one in found.statistics("filename"))


@pytest.mark.usefixtures("frozen_again")
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_counted_is_what_it_takes_at_least(kind):
    """70,000 producers with topics of 10,200 characters took 1.4 GiB, and were not counted."""
    rig = EngineRig(is_topics_open=True, definitions_bytes_max=1 << 30, topic_characters_max=12_000)
    client, count = Client(rig, 5), 5
    KINDS[kind](client, -1)
    counted = used(rig)
    gc.freeze()  # what other tests have left is not looked through again and again
    tracemalloc.start()
    try:
        before = _of_the_engine()
        for n in range(count):
            KINDS[kind](client, n)
        rig.log.clear()
        gc.collect()
        taken = _of_the_engine() - before
    finally:
        tracemalloc.stop()
        gc.unfreeze()

    assert taken <= used(rig) - counted


@pytest.mark.parametrize("kind", PASSING)
def test_what_is_closed_and_forgotten_is_not_counted(kind):
    """A topic that nobody holds any longer gives its bytes back."""
    rig = EngineRig(is_topics_open=True, topic_characters_max=12_000)
    before, topics = used(rig), rig.engine.state.shares.topics.used
    client = Client(rig, 5)
    for n in range(3):
        KINDS[kind](client, n)
    assert used(rig) > before
    client.close()
    rig.now_ms += rig.engine.state.settings.topic_life_ms + 1
    rig.run(lambda fx: rig.engine.tick(rig.now_ms, fx))

    assert used(rig) == before
    assert rig.engine.state.shares.topics.used == topics
    assert rig.engine.state.shares.opened.used_by(1005) == 0


def test_destinations_and_subscriptions_give_their_shares_back():
    """Whatever was changed in between."""
    rig = EngineRig(is_topics_open=True)
    shares = rig.engine.state.shares
    before = used(rig), shares.definitions.used
    client = Client(rig, 5)
    client.administer("queue.create", name="q")
    client.administer("queue.alter", name="q", attributes={"max_messages": 5})
    client.administer("topic.create", name="n", attributes={"topic_string": "a/b"})
    client.administer("subscription.create", name="s", topic="a/b", queue="q", selector="a = 1")
    assert shares.definitions.used_by(client.owner) == shares.definitions.used - before[1]
    client.administer("subscription.delete", name="s")
    client.administer("topic.delete", name="n")
    client.administer("queue.delete", name="q")
    client.subscribe("a/b", durable="d", selector="a = 1")
    rig.run(lambda fx: rig.engine.close_consumer(5, client.handle, rig.now_ms, fx))
    client.subscribe("a/b", durable="d", selector="a = 1 OR b = 2")  # replaces it
    rig.run(lambda fx: rig.engine.close_consumer(5, client.handle, rig.now_ms, fx))
    rig.run(lambda fx: rig.engine.unsubscribe("", "d", rig.now_ms, fx, "a/b"))
    client.close()
    rig.now_ms += rig.engine.state.settings.topic_life_ms + 1
    rig.run(lambda fx: rig.engine.tick(rig.now_ms, fx))

    assert (used(rig), shares.definitions.used) == before
    assert (shares.defined.used_by(1005), shares.definitions.used_by(1005)) == (0, 0)


# limits


def opened(open_one, error):
    """How often it could be opened, and the error that it ended with."""
    for n in range(100_000):
        try:
            open_one(n)
        except error as fault:
            return n, fault
    raise AssertionError("it is never refused")


@pytest.mark.parametrize(
    "kind", ["producer, new long topic", "subscriber, selector", "watch", "queue", "durable"]
)
def test_one_client_leaves_memory_to_others(kind, free_bytes):
    """Neither over two connections, nor after a reconnect."""
    limits = {"memory_bytes_max": 1 << 20, "definitions_bytes_max": 1 << 26}
    rig = EngineRig(is_topics_open=True, topic_characters_max=12_000, **limits)
    is_defined, shares = kind not in PASSING, rig.engine.state.shares
    share = shares.defined if is_defined else shares.opened
    greedy = Client(rig, 5, client_id="greedy")
    _, fault = opened(lambda n: KINDS[kind](greedy, n), OpenMemoryLimit)

    assert "this client" in str(fault)
    assert "max_memory_bytes" in str(fault)
    assert share.used <= share.limit == free_bytes + (1 << (17 if is_defined else 18))
    assert share.used_by("greedy") > 0.7 * share.limit_of_one
    other = Client(rig, 6)
    count, fault = opened(lambda n: KINDS[kind](other, 1_000_000 + n), OpenMemoryLimit)
    assert count
    assert "all clients" in str(fault)
    greedy.close()
    if not is_defined:
        KINDS[kind](other, 3_000_000)
    Client(rig, 7).consume(kind="queue", destination="orders")


def test_one_client_leaves_topics_to_others():
    """One could take all of max_topics, and nobody else could use a new topic."""
    rig = EngineRig(is_topics_open=True, topics_max=101)
    greedy, other = Client(rig, 5), Client(rig, 6)
    count, fault = opened(lambda n: greedy.produce(f"g/{n}"), ConsumerLimit)
    assert (count, "topics of one client" in str(fault)) == (75, True)  # with "g", "news"
    with pytest.raises(ConsumerLimit):
        greedy.subscribe("g/another")
    greedy.produce("g/1")

    count, fault = opened(lambda n: other.produce(f"o/{n}"), TopicLimit)
    assert count == 23
    greedy.close()
    other.produce("o/again")


def test_topics_that_nobody_uses_make_room_for_others():
    """They were kept for topic_life_s, and for so long nobody could use a new one."""
    rig = EngineRig(is_topics_open=True, topics_max=20)
    client = Client(rig, 5)
    opened(lambda n: client.produce(f"a/{n}"), ConsumerLimit)
    client.close()
    client = Client(rig, 5)
    count, _ = opened(lambda n: client.produce(f"b/{n}"), ConsumerLimit)

    assert count == 14
    assert rig.engine.state.space.tree.find("a/1") is None


def test_topic_strings_that_nobody_uses_make_room_for_what_is_opened(free_bytes):
    """Who publishes on one new topic after the other is not refused for those before."""
    rig = EngineRig(is_topics_open=True, memory_bytes_max=1 << 20, topic_characters_max=12_000)
    client, share = Client(rig, 5), rig.engine.state.shares.opened
    for n in range(100):
        client.produce(f"{n}{LONG}")
        rig.run(lambda fx: rig.engine.close_producer(5, client.handle, fx))

    assert share.used <= share.limit == free_bytes + (1 << 18) < 100 * len(LONG)


def test_what_clients_have_open_counts_in_the_quota(free_bytes):
    """Else a node would take more than max_memory_bytes and what its manual says."""
    limit = 8 << 20
    rig = EngineRig(is_topics_open=True, memory_bytes_max=limit, topic_characters_max=12_000)
    client = Client(rig, 5)
    opened(lambda n: client.produce(f"{n}{LONG}"), OpenMemoryLimit)
    open_bytes = rig.engine.state.shares.opened.used - free_bytes
    assert rig.engine.state.held_bytes == open_bytes > limit // 8

    count, _ = opened(lambda _: rig.send(body=bytes(1 << 17), is_persistent=False), NodeFull)
    assert count == (limit - open_bytes) // ((1 << 17) + 300)


# definitions


@pytest.mark.parametrize("client_id", ["", "greedy"])
def test_one_client_leaves_definitions_to_others(client_id):
    """About 1,000 durable subscriptions, and queue.create was refused to everybody."""
    rig = EngineRig(is_topics_open=True, definitions_bytes_max=60_000)
    greedy, other = Client(rig, 5, client_id), Client(rig, 6)
    _, fault = opened(lambda n: greedy.subscribe(durable=f"d{n}"), ConsumerLimit)
    assert "bytes of definitions of one client" in str(fault)
    with pytest.raises(ConsumerLimit, match="of one client"):
        greedy.administer("queue.create", name="g" * 250)
    other.administer("queue.create", name="q")
    other.subscribe(durable="mine")
    if not client_id:
        return
    rig.start()
    greedy, other = Client(rig, 5, client_id), Client(rig, 6)
    with pytest.raises(ConsumerLimit, match="of one client"):
        greedy.subscribe(durable="another")
    other.administer("queue.create", name="q2")


@pytest.mark.parametrize("is_warm", [True, False])
@pytest.mark.usefixtures("free_bytes")
def test_a_store_that_has_more_than_is_allowed_now_boots(is_warm):
    """An older version took it; it works, and takes nothing new until there is less."""
    rig = EngineRig(is_topics_open=True, definitions_bytes_max=1 << 26)
    client, names = Client(rig, 5), [f"q{n}" for n in range(60)]
    for name in names:
        client.administer("queue.create", name=name)
    client.subscribe("a/b/c", durable="d")
    rig.send()
    rig.limits |= {"memory_bytes_max": 1 << 20, "definitions_bytes_max": 1000, "topics_max": 2}
    rig.start(is_warm=is_warm)

    shares = rig.engine.state.shares
    assert shares.defined.used > shares.defined.limit
    rig.send()
    client = Client(rig, 5)
    client.consume(kind="queue", destination="q7", selector="a = 1")
    assert len(rig.consume(1)) == 1 + is_warm
    for refused in (
        lambda: client.administer("queue.create", name="another"),
        lambda: client.subscribe("news", durable="another"),
    ):
        with pytest.raises((OpenMemoryLimit, ConsumerLimit)):
            refused()
    for name in names[10:]:
        client.administer("queue.delete", name=name)
    assert shares.defined.used < shares.defined.limit


def test_a_share_knows_who_has_what():
    """What is nobody's counts for all, and never for one."""
    share = Share(100)
    share.take("a", 70)
    share.take(0, 20)
    assert (share.used, share.used_by("a"), share.limit_of_one) == (90, 70, 75)
    assert (share.is_over(10), share.is_over(11)) == (False, True)
    assert (share.is_over_alone("a", 6), share.is_over_alone(0, 100)) == (True, False)
    share.take("a", -70)
    assert not share._own
