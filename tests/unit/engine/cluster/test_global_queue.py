"""Global queues over engines alone: where messages go, and that they go there whole and once."""

from hms.engine.cluster import demand
from hms.engine.cluster.cluster_messages import Answer, Ask, Offer, decode_message
from hms.engine.cluster.cluster_settings import Scope
from hms.engine.cluster.peer_state import Peer
from tests.support.cluster_rig import World


def started(count=2, **options):
    """A world whose nodes know one another."""
    world = World(count, **options)
    world.link_all()
    world.settle()
    return world


def test_a_consumer_is_served_by_a_producer_at_another_node():
    """That is what the cluster is for: whoever is connected where."""
    world = started()
    world.nodes[2].consume()
    world.tick()

    world.nodes[1].send(50)
    world.nodes[1].sync()
    world.settle()

    assert len(world.nodes[2].got) == 50
    assert world.nodes[1].held() == []
    assert world.nodes[1].undecided() == []


def test_a_message_keeps_what_it_was_sent_with():
    """A consumer must not see at which node a message arrived."""
    world = started()
    world.nodes[1].send(1, priority=7, ttl_ms=60_000, properties={"Month": 5})
    world.nodes[1].sync()
    (before,) = world.nodes[1].queue.line.everything()
    world.nodes[2].consume()
    world.tick()

    (after,) = world.nodes[2].got

    same = ("id", "timestamp_ms", "priority", "kind", "head_bytes", "payload", "is_persistent")
    assert [getattr(after, n) for n in same] == [getattr(before, n) for n in same]
    assert after.expires_at_ms == before.expires_at_ms


def test_the_buffer_of_consumers_here_stays_here():
    """A message that came to fill a buffer must not be asked back: that would be ping-pong."""
    world = started(threshold=10)
    for node in world.nodes.values():
        node.consume(credit=0)
    world.nodes[1].send(15)
    world.nodes[1].sync()
    for _ in range(10):
        world.tick()

    lengths = [len(node.held()) for node in world.nodes.values()]
    moved = [node.queue.line.counters.moved_out for node in world.nodes.values()]

    assert lengths == [10, 5]
    assert moved == [5, 0]


def test_a_full_queue_pushes_to_shorter_ones_and_then_rests():
    """F-J7, and no message moves twice without need."""
    world = started(3, full=20)
    world.nodes[1].send(90)
    world.nodes[1].sync()
    for _ in range(10):
        world.tick()

    lengths = [len(node.held()) for node in world.nodes.values()]
    moved = sum(node.queue.line.counters.moved_out for node in world.nodes.values())

    assert sum(lengths) == 90
    assert max(lengths) - min(lengths) <= 4
    assert moved <= 60


def test_local_only_never_moves_and_local_preferred_only_without_consumers_here():
    """What is local by the operator's word stays local (WebOTX's isLocalOnly)."""
    for scope, expected in ((Scope.LOCAL_ONLY, 0), (Scope.LOCAL_PREFERRED, 20)):
        world = started(scope=scope)
        world.nodes[2].consume()
        world.nodes[1].send(20)
        world.nodes[1].sync()
        world.tick()
        assert len(world.nodes[2].got) == expected
    world = started(scope=Scope.LOCAL_PREFERRED, threshold=1)
    world.nodes[1].consume(credit=0)
    world.nodes[2].consume()
    world.nodes[1].send(20)
    world.nodes[1].sync()
    world.tick()
    assert world.nodes[2].got == []


def test_only_what_a_selector_chooses_comes():
    """A node whose consumers all choose must not be filled with what none of them takes."""
    world = started()
    world.nodes[1].send(10, properties={"Month": 5})
    world.nodes[1].send(10, properties={"Month": 6})
    world.nodes[1].sync()
    world.nodes[2].consume(selector="Month = 6")
    world.tick()
    world.tick()

    assert len(world.nodes[2].got) == 10
    assert len(world.nodes[1].held()) == 10


def test_a_queue_without_room_refuses_and_the_messages_wait_where_they_were():
    """P8 holds for other nodes too, and a refusal loses nothing."""
    world = started(limits={2: {"messages_max": 3}})
    world.nodes[1].send(10)
    world.nodes[1].sync()
    world.nodes[2].consume(credit=0)
    for _ in range(3):
        world.tick()

    assert len(world.nodes[1].held()) + len(world.nodes[2].held()) == 10
    assert len(world.nodes[2].held()) <= 3
    assert world.nodes[1].undecided() == []
    assert world.nodes[1].engine.cluster.peers[2].tally.refused > 0


def test_a_failed_node_leaves_the_picture_at_once():
    """Its consumers must not attract messages that they will not take."""
    world = started()
    world.nodes[2].consume()
    world.tick()
    world.unlink(1, 2)

    world.nodes[1].send(5)
    world.nodes[1].sync()
    world.tick()

    assert len(world.nodes[1].held()) == 5
    assert world.nodes[1].undecided() == []


def test_clocks_an_hour_apart_neither_expire_nor_immortalise():
    """C10: a time to live is a duration; whose clock measures it must not matter."""
    for skew_ms in (-3_600_000, 3_600_000):
        world = started(skew_ms={2: skew_ms})
        world.nodes[1].send(1, ttl_ms=10_000)
        world.nodes[1].sync()
        world.nodes[2].consume(credit=0)
        world.tick()
        (message,) = world.nodes[2].queue.line.everything()
        left_ms = message.expires_at_ms - world.clock(2)
        assert 8_000 <= left_ms <= 10_000
        world.crash(2)
        (message,) = world.nodes[2].queue.line.everything()
        assert message.expires_at_ms - world.clock(2) == left_ms


def test_a_drained_node_gives_everything_away_and_takes_nothing():
    """Before maintenance nothing may be left that only this node has."""
    world = started(3)
    world.nodes[1].send(40)
    world.nodes[1].sync()

    world.nodes[1].engine.cluster.drain()
    for _ in range(4):
        world.tick()

    assert world.nodes[1].held() == []
    assert len(world.nodes[2].held()) + len(world.nodes[3].held()) == 40


def test_what_failed_before_keeps_its_count_of_attempts():
    """A poison message must not get three new tries at every node."""
    world = started()
    one = world.nodes[1]
    one.consume()
    one.send(1)
    one.sync()
    (message,) = one.got
    from hms.engine.queue.settlement import Return

    span = [(message.id, message.id)]
    one.run(lambda fx: one.engine.close_consumer(1, 1, world.now_ms, fx))
    one.consume(2)
    one.run(lambda fx: one.engine.give_back(1, 2, 0, span, Return.FAILED, world.now_ms, fx))
    one.run(lambda fx: one.engine.close_consumer(1, 2, world.now_ms, fx))
    assert one.queue.line.attempts(message) == 1
    one.sync()
    world.nodes[2].consume(credit=0)
    world.tick()
    two = world.nodes[2]

    (moved,) = two.queue.line.everything()

    assert two.queue.line.attempts(moved) == 1
    world.crash(2)
    assert two.queue.line.attempts(moved) == 1


def test_a_message_of_a_group_stays_where_its_fellows_are():
    """Two nodes would hand a group out side by side."""
    world = started()
    world.nodes[1].send(3, properties={"JMSXGroupID": "g"})
    world.nodes[1].send(2)
    world.nodes[1].sync()
    world.nodes[2].consume()
    world.tick()
    world.tick()

    assert len(world.nodes[2].got) == 2
    assert len(world.nodes[1].held()) == 3


def test_what_selectors_of_another_node_choose_is_looked_for_in_slices(monkeypatch):
    """One ask had every selector asked about all that waits, under one hold of the lock; nothing
    may be overlooked for it, wherever it stands."""
    monkeypatch.setattr(demand, "LOOK_STEPS", 30)
    world, asked = started(), []
    fits = demand._fits
    monkeypatch.setattr(demand, "_fits", lambda m, w: asked.append(m.id) or fits(m, w))
    world.nodes[1].send(100, properties={"Month": 5})
    world.nodes[1].send(1, properties={"Month": 6})
    world.nodes[1].send(20, properties={"Month": 5})
    world.nodes[1].sync()
    world.nodes[2].consume(selector="Month = 6")

    most = 0
    for _ in range(40):
        asked.clear()
        world.tick()
        most = max(most, len(asked))
    world.settle()

    assert [m.head().properties["Month"] for m in world.nodes[2].got] == [6]
    assert 0 < most <= 2 * 30 // 2
    assert len(world.nodes[1].held()) == 120


def test_an_ask_that_says_the_same_reads_its_selectors_once():
    """A thousand of them, with every interval, were read again under the lock."""
    peer = Peer(2, "other")
    said = Ask("q", 1, 0, ["a = 1", "b = 2"])
    peer.wants(said, 1000)
    first = peer.wanted["q"]
    first.looked = 7
    peer.wants(said, 2000)
    again = peer.wanted["q"]

    assert all(one is other for one, other in zip(first.selectors, again.selectors, strict=True))
    assert again.looked == 7
    peer.wants(Ask("q", 1, 0, ["b = 2"]), 3000)
    assert peer.wanted["q"].looked == 0


def _settle_without(world, wire, *kinds):
    """Carry words, but for those of some kinds on one wire: what a cut is about to take along."""
    for _ in range(1000):
        said = world.wires.get(wire, [])
        world.wires[wire] = [w for w in said if not isinstance(decode_message(w[1])[0], kinds)]
        busy = sorted(wire for wire, words in world.wires.items() if words)
        if not busy:
            return
        world.deliver_one(busy[0])
    raise AssertionError("the nodes never come to rest")


def test_what_comes_back_before_its_own_move_is_answered_is_kept():
    """The answer was lost in a cut, and so was the offer that brought it back; said again, that is
    here first. Taken, it left with the late answer, and a boot did not find it."""
    world = started()
    one, two = world.nodes[1], world.nodes[2]
    one.send(1)
    one.sync()
    (id_,) = one.held()
    two.consume(credit=0)
    for node in (one, two):
        node.tick()
        node.sync()
    _settle_without(world, (2, 1), Answer, Offer)
    assert (one.undecided(), two.held()) == ([id_], [id_])

    two.leave()
    one.consume(credit=0)
    for _ in range(2):
        for node in (two, one):
            world.now_ms += 500
            node.tick()
            node.sync()
        _settle_without(world, (2, 1), Answer, Offer)
    assert (one.undecided(), two.undecided()) == ([id_], [id_])
    world.unlink(1, 2)
    world.link(1, 2)
    world.settle()
    assert world.copies() == {id_: 1}
    world.crash(1)
    world.crash(2)

    for _ in range(3):
        world.tick()
    assert world.copies() == {id_: 1}
    assert [*one.undecided(), *two.undecided()] == []
