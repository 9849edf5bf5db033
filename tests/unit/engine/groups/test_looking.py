"""Selectors look at what waits in slices: no command looks at more than its steps allow (P8)."""

import random
import sys
import tracemalloc

import pytest

from hms.engine.effects import Browsed, Deliver, Reply
from hms.engine.groups import candidates, scan_slices
from hms.engine.groups.scan_order import END
from hms.engine.groups.scan_slices import LOOK_STEPS
from hms.engine.messages import StoredMessage
from hms.engine.queue.pending_list import PendingList
from hms.engine.queue.settlement import Return
from hms.engine.queue.waiting_chunks import WaitingChunks
from hms.engine.selector import Selector
from hms.engine.session.session_objects import Consumer
from hms.engine.topic.subscription_begin import ConsumerRequest
from tests.support.engine_rig import EngineRig, delivered

COSTLY = " OR ".join(f"text LIKE '%{letter}_%y%'" for letter in "abcdefghijkl")
MANY = 3000


@pytest.fixture
def looks(monkeypatch):
    """How often a selector of a consumer was asked."""
    counted, ask = [], Consumer.wants

    def wants(consumer, message):
        counted.append(message.id)
        return ask(consumer, message)

    monkeypatch.setattr(Consumer, "wants", wants)
    return counted


@pytest.fixture
def rig():
    """Many messages wait, of which the last one matches."""
    made = EngineRig()
    for _ in range(MANY // 500):
        made.send(count=500, properties={"text": "x" * 200}, is_persistent=False)
    made.send(properties={"text": "a1y"}, is_persistent=False)
    return made


def tick(rig):
    rig.now_ms += 1
    return rig.run(lambda fx: rig.engine.tick(rig.now_ms, fx))


def tick_until(rig, is_done, ticks_max=200):
    """Effects of ticks, as long as the engine says that one is due."""
    out = []
    for _ in range(ticks_max):
        if is_done():
            return out
        assert rig.engine.due_ms() is not None
        out += tick(rig).out
    raise AssertionError(f"not done after {ticks_max} ticks")


def price():
    return Selector(COSTLY).price.of(1, 220)


def test_a_consumer_looks_at_many_messages_in_slices(rig, looks):
    """100,000 messages and 12 LIKEs held the lock for 20 s."""
    assert rig.consume(1, selector=COSTLY) == []
    per_slice = [len(looks)]
    out = []
    while rig.engine.state.looking.is_any:
        before = len(looks)
        out += tick(rig).out
        per_slice.append(len(looks) - before)

    assert max(per_slice) <= 1.1 * LOOK_STEPS // price()
    assert len(looks) == MANY + 1
    (message,) = [m for effect in out if isinstance(effect, Deliver) for m in effect.messages]
    assert message.head().properties == {"text": "a1y"}
    assert rig.engine.due_ms() is None


def test_other_commands_go_on_in_between(rig):
    """They need not wait for the last slice."""
    rig.consume(1, selector=COSTLY)
    rig.consume(2, "slow")

    assert delivered(rig.send(3))
    assert rig.engine.state.looking.is_any


def test_a_poll_is_answered_when_everything_was_looked_at(rig):
    """receive(0) would say that nothing waits, though it does."""
    rig.consume(1, selector=COSTLY)
    fx = rig.run(lambda fx: rig.engine.poll(1, 1, 42, rig.now_ms, fx))
    assert not [effect for effect in fx.out if isinstance(effect, Reply)]

    out = tick_until(rig, lambda: not rig.engine.state.looking.is_any)

    assert [type(effect) for effect in out] == [Deliver, Reply]
    assert out[-1].correlation == 42


def test_a_poll_is_answered_when_its_consumer_is_closed(rig):
    """Its client waits for it."""
    rig.consume(1, selector=COSTLY)
    rig.run(lambda fx: rig.engine.poll(1, 1, 42, rig.now_ms, fx))

    fx = rig.run(lambda fx: rig.engine.close_consumer(1, 1, rig.now_ms, fx))

    assert [effect.correlation for effect in fx.out if isinstance(effect, Reply)] == [42]
    tick(rig)
    assert not rig.engine.state.looking.is_any


def test_what_is_sent_meanwhile_does_not_overtake(rig):
    """Order of one producer's messages holds although the consumer is behind."""
    rig.consume(1, selector=COSTLY)
    rig.send(properties={"text": "a2y"}, is_persistent=False)

    out = tick_until(rig, lambda: not rig.engine.state.looking.is_any)

    got = [m for effect in out if isinstance(effect, Deliver) for m in effect.messages]
    assert [m.head().properties["text"] for m in got] == ["a1y", "a2y"]


def test_what_others_take_meanwhile_is_not_kept(rig):
    """What consumers that are late remember is bounded by what waits."""
    place = rig.engine.state.queues["orders"]
    rig.consume(1, selector=COSTLY)
    rig.consume(2, credit=10)
    tick_until(rig, lambda: not rig.engine.state.looking.is_any)
    for _ in range(20):
        rig.send(count=500, properties={"text": "x" * 200}, is_persistent=False)
        for message in list(place.line.in_order())[: MANY - 200]:
            place.line.remove(message)

    assert len(place.line.open_scan().late) <= 2 * place.line.waiting_count + 2048
    rig.consume(3, selector="text IS NULL")  # and a new one begins with what is there
    tick_until(rig, lambda: not rig.engine.state.looking.is_any)
    assert len(place.line.open_scan().late) == 0


def test_what_has_left_is_not_kept_alive():
    """The quota counts a message no more once it has left its queue."""

    def kept(selector):
        rig = EngineRig()
        rig.consume(1, selector=selector, credit=0)
        rig.send(count=5, properties={"n": 1}, is_persistent=False)
        line = rig.engine.state.queues["orders"].line
        (message, *_) = line.in_order()
        line.remove_everything()
        return sys.getrefcount(message)

    assert kept("n = 1") == kept("")


@pytest.mark.parametrize("looks", [12, LOOK_STEPS], ids=["behind", "not behind"])
def test_what_a_consumer_remembers_does_not_grow_with_what_waits(looks, monkeypatch):
    """1,000 consumers at 100,000 messages held 816 MiB, and 8 GiB when all of these matched."""
    rig = EngineRig()
    for _ in range(10):
        rig.send(count=500, properties={"n": -1}, is_persistent=False)
    monkeypatch.setattr(scan_slices, "LOOK_STEPS", looks)
    rig.engine.state.looking.refill()
    rig.consume(1, selector="n <> 0", credit=0)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for handle in range(2, 12):
            rig.now_ms += 1
            rig.consume(handle, selector=f"n <> {handle}", credit=0)
            if looks == LOOK_STEPS:
                tick_until(rig, lambda: not rig.engine.state.looking.is_any)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    assert rig.engine.state.looking.is_any is (looks == 12)
    assert grown / 10 < 30_000


def test_a_page_of_a_browser_ends_when_it_has_looked_at_many(rig):
    """It says that more follow, and the next one goes on behind what was looked at."""
    pages, after = [], 0
    while True:
        args = (1, 1, "orders", COSTLY, True, after, 100)
        fx = rig.run(lambda fx, args=args: rig.engine.browse(*args, fx))
        (page,) = [effect for effect in fx.out if isinstance(effect, Browsed)]
        pages.append(page)
        if not page.has_more:
            break
        assert page.position > after
        after = page.position

    assert len(pages) >= MANY * price() // LOOK_STEPS
    assert [m.head().properties["text"] for page in pages for m in page.messages] == ["a1y"]


class Scene:
    """Random sends, consumers, returns and ticks; what each consumer got, by seq."""

    def __init__(self, seed):
        self.rng, self.rig = random.Random(seed), EngineRig()
        self.rig.engine.state.looking.refill()
        self.wanted, self.got = {}, {}

    def send(self):
        count, n = self.rng.randint(1, 5), self.rng.randint(0, 2)
        self.see(self.rig.send(count=count, properties={"n": n}))

    def open(self):
        handle = len(self.wanted) + 1
        if handle > 3:
            return
        self.wanted[handle] = handle - 1
        request = ConsumerRequest(handle, 1, "queue", "orders", 1000, selector=f"n = {handle - 1}")
        engine, now_ms = self.rig.engine, self.rig.now_ms
        self.see(self.rig.run(lambda fx: engine.open_consumer(1, request, 1, now_ms, fx)))

    def give_back(self):
        if not self.wanted:
            return
        handle = self.rng.choice(list(self.wanted))
        spans = [(i, i) for i in list(self.out_of(handle))[-2:]]
        engine, now_ms = self.rig.engine, self.rig.now_ms
        args = (1, handle, 0, spans, Return.RELEASED, now_ms)
        self.see(self.rig.run(lambda fx: engine.give_back(*args, fx)))

    def tick(self):
        self.see(tick(self.rig))

    def out_of(self, handle):
        return self.rig.engine.state.connections[1].consumers[handle].out

    def see(self, fx):
        for effect in fx.out:
            if isinstance(effect, Deliver):
                self.got.setdefault(effect.consumer, []).extend(m.seq for m in effect.messages)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("found_max", [1, candidates.FOUND_MAX])
def test_slices_change_neither_what_is_delivered_nor_its_order(seed, found_max, monkeypatch):
    """However small they are, however little is remembered, and whatever happens in between."""
    monkeypatch.setattr(scan_slices, "LOOK_STEPS", 12)
    monkeypatch.setattr(candidates, "FOUND_MAX", found_max)
    scene = Scene(seed)
    acts = [scene.send, scene.send, scene.send, scene.open, scene.tick, scene.give_back]
    for _ in range(60):
        scene.rng.choice(acts)()
    while scene.rig.engine.state.looking.is_any:
        scene.tick()

    place = scene.rig.engine.state.queues["orders"]
    left = {m.head().properties["n"] for m in place.line.in_order()}
    assert not left & set(scene.wanted.values())
    for handle, n in scene.wanted.items():
        assert {m.head().properties["n"] for m in scene.out_of(handle).values()} <= {n}
        firsts = list(dict.fromkeys(scene.got.get(handle, [])))
        assert firsts == sorted(firsts)


@pytest.mark.parametrize("found_max", [1, 3, candidates.FOUND_MAX])
def test_what_is_forgotten_is_found_again_in_the_order_of_the_queue(found_max, monkeypatch):
    """Who remembers only the first few must still get the rest, what is urgent first."""
    monkeypatch.setattr(candidates, "FOUND_MAX", found_max)
    rig, rng = EngineRig(), random.Random(found_max)
    rig.consume(1, selector="n = 1", credit=0)
    wanted = []
    for number in range(200):
        priority, n = rng.randint(0, 9), rng.randint(0, 1)
        rig.send(properties={"n": n}, priority=priority, body=b"%d" % number, is_persistent=False)
        if n:
            wanted.append((-priority, number))
        if number % 50 == 49:  # what others take is passed over
            place = rig.engine.state.queues["orders"]
            for message in list(place.line.in_order())[::7]:
                place.line.remove(message)
                key = -message.priority, int(message.payload[message.head_bytes :])
                wanted = [w for w in wanted if w != key]

    got = []
    for _ in range(len(wanted)):
        now_ms = rig.now_ms
        fx = rig.run(lambda fx, now_ms=now_ms: rig.engine.credit(1, 1, 0, 1, now_ms, fx))
        got += [(-m.priority, int(m.payload[m.head_bytes :])) for m in delivered(fx)]
        rig.now_ms += 1

    assert got == sorted(wanted)


def test_what_was_taken_behind_a_message_that_nobody_takes_is_not_kept():
    """900 messages of 1 MiB, each acknowledged before the next one came, took 944 MiB."""
    rig = EngineRig()
    rig.send(properties={"n": 0}, is_persistent=False)
    rig.consume(1, selector="n = 1", credit=1000)
    tracemalloc.start()
    try:
        for _ in range(40):
            fx = rig.send(properties={"n": 1}, body=bytes(1 << 16), is_persistent=False)
            rig.acknowledge(1, delivered(fx))
        del fx
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert taken < 5 << 16


def test_a_message_that_comes_and_goes_while_the_order_grows_is_not_in_it():
    """What a boot found stands in a list that messages are added to."""
    messages = [
        StoredMessage.of(seq + 1000, seq, 0, 0, 4, 0, 0, b"x", *[False]) for seq in range(1, 12)
    ]
    *found, late = messages
    line, chunks = PendingList(0, "q"), WaitingChunks()
    chunks._chunks.append(found)
    line._ready._level(4)
    line._ready._later[4] = chunks
    line.waiting_count = line.totals.messages = len(found)
    scan = line.open_scan()
    scan.grow(5)
    line.add([late])
    line.remove(late)
    while scan.frontier is not END:
        scan.grow(5)

    assert line.open_index().keys() == {message.id for message in messages[:-1]}
