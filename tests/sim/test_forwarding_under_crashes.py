"""A message that is forwarded to a queue of another node, killed at each of its records and cut at
each of its words: in one place at every instant, and in the end there, or where it came from.
"""

from dataclasses import replace

import pytest

from hms.engine.effects import Effects
from hms.engine.engine import Engine
from hms.engine.messages import StoredMessage
from hms.errors.catalogue import InvalidArgument, NodeNotUp
from tests.support.cluster_rig import QUEUE, World

HERE, THERE = 1, 2
DLQ = "HMS.DLQ"
ENDS = (
    "here dies",
    "there dies",
    "both die",
    "cut",
    "here cleans and dies",
    "there cleans and dies",
)


def order(at, verb, **arguments):
    """An operation and its answer."""
    said = []
    now_ms = at.world.clock(at.index)
    at.run(lambda fx: said.append(at.engine.administer(verb, arguments, now_ms, fx)))
    return said[0]


def forward(node, place, to, **selection):
    chosen = selection or {"is_all": True}
    return order(node, "message.move", place=f"queue:{place}", to=to, node="n2", **chosen)


def places(world):
    """Where each message can be given to a consumer, or waits to go on; and what is offered, of
    which nobody can say so yet."""
    found, offered = {}, set()
    for index, node in world.nodes.items():
        state = node.engine.state
        for queue in state.queues.values():
            kind = "on its way" if queue.name.startswith("HMS.TO.") else queue.name
            for message in queue.line.everything():
                found.setdefault(message.id, []).append((index, kind))
        offered |= {m.id for offer in state.moves.offers() for m in offer.messages}
    return found, offered


def _begin(to, limits):
    world = World(2, limits=limits)
    world.link_all()
    world.settle()
    here = world.nodes[HERE]
    here.send(3)
    order(here, "message.move", place=f"queue:{QUEUE}", to=DLQ, is_all=True)
    here.sync()
    forward(here, DLQ, to)
    return world


def _next_step(world, is_fast):
    def sync():
        for node in world.nodes.values():
            if node.durable < len(node.log):
                return lambda: node.sync(node.durable + 1)
            if node.said:
                return node.sync
        return None

    def word():
        for wire in sorted(world.wires):
            if world.wires[wire]:
                return lambda: world.deliver_one(wire, is_synced=False)
        return None

    kinds = (sync, word) if is_fast else (word, sync)
    return kinds[0]() or kinds[1]()


def _end(world, how):
    if "cleans" in how:
        world.nodes[HERE if "here" in how else THERE].clean()
    dead = {"here": (HERE,), "there": (THERE,), "both": (HERE, THERE), "cut": ()}[how.split()[0]]
    world.unlink(HERE, THERE)
    for index in dead:
        world.nodes[index].boot()
    world.link(HERE, THERE)


CASES = {
    "taken": (DLQ, {}),
    "no such queue": ("nowhere", {}),
    "room for one of three": (QUEUE, {THERE: {"messages_max": 1}}),
}
FINAL = {
    "taken": [(THERE, DLQ)] * 3,
    "no such queue": [(HERE, DLQ)] * 3,
    "room for one of three": [(HERE, DLQ), (HERE, DLQ), (THERE, QUEUE)],
}


@pytest.mark.parametrize("is_fast", [True, False])
@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("case", CASES)
def test_what_is_forwarded_is_in_one_place_wherever_a_node_dies(case, how, is_fast):
    """P6 over a link that nobody balances: the other node's queue, or where it came from."""
    to, limits = CASES[case]
    until, is_last = 0, False
    while not is_last:
        world = _begin(to, limits)
        steps = 0
        while steps < until and (step := _next_step(world, is_fast)) is not None:
            step()
            steps += 1
            _check(world)
        is_last = steps < until
        _end(world, how)
        _check(world)
        world.settle()
        for _ in range(4):
            world.tick()
        found, offered = _check(world)
        assert offered == set()
        ends = sorted(one[0] for one in found.values())
        assert set(ends) <= {(HERE, DLQ), (THERE, to)}, ends
        if is_last:
            assert ends == FINAL[case]
        until += 1
    assert until >= 8


def _check(world):
    found, offered = places(world)
    assert all(len(one) == 1 for one in found.values()), found
    assert len(found.keys() | offered) == 3, "one is lost"
    return found, offered


def test_what_a_node_refuses_says_why():
    """A rules table goes on to its next rule."""
    world = _begin("nowhere", {})
    ids = [f"{id_:012X}" for id_ in sorted(places(world)[0].keys() | places(world)[1])]
    here = world.nodes[HERE]
    before = order(here, "message.forwarded", place=f"queue:{DLQ}", ids=" ".join(ids))
    here.sync()
    world.settle()
    said = order(here, "message.forwarded", place=f"queue:{DLQ}", ids=" ".join(ids))

    assert (before["count"], before["ids"], before["refused"]) == (3, ids, {})
    assert (said["count"], said["ids"], list(said["refused"])) == (0, [], ids)
    assert all("nowhere" in why for why in said["refused"].values())
    other = order(here, "message.forwarded", place=f"queue:{QUEUE}", ids=" ".join(ids))
    assert other["refused"] == {}, "who may look at another place learns nothing of this one"


def test_nothing_is_forwarded_to_a_node_that_is_not_there():
    """It is told at once, and changes nothing."""
    node = World(2).nodes[HERE]
    node.send(1)
    for name in ("n2", "n9"):
        with pytest.raises(NodeNotUp, match=name):
            order(node, "message.move", place=f"queue:{QUEUE}", to=DLQ, node=name, is_all=True)
    assert len(node.queue.line.everything()) == 1


@pytest.mark.parametrize("to", ["", "queue:", "x" * 256, "HMS.TO.2:1:whole:late"])
def test_a_target_that_is_no_name_is_refused_before_anything_leaves(to):
    """A name of 2,000 characters fitted no word of a link: its messages were on their way for
    ever."""
    world = World(2)
    world.link_all()
    world.settle()
    node = world.nodes[HERE]
    node.send(1)
    with pytest.raises(InvalidArgument, match="to: "):
        forward(node, QUEUE, to)
    assert len(node.queue.line.everything()) == 1


def test_what_was_not_offered_comes_back_when_its_node_stays_away():
    """An operator finds it where it was; nothing waits for ever for a node that was taken away."""
    world = World(2)
    world.link_all()
    world.settle()
    node = world.nodes[HERE]
    for count in (5, 4):  # the second lot waits for the answer to the first
        node.send(count)
        forward(node, QUEUE, DLQ)
    (offer,) = node.engine.state.moves.offers()
    world.unlink(HERE, THERE)
    for _ in range(70):
        world.tick()

    assert (len(offer.messages), len(node.queue.line.everything())) == (5, 4)
    assert list(node.engine.state.moves.offers()) == [offer]
    world.link(HERE, THERE)
    world.settle()
    assert node.undecided() == []
    for _ in range(70):
        world.tick()
    assert [name for name in node.engine.state.queues if ":" in name] == []


def test_a_forward_for_nobody_goes_back_at_boot():
    """The cluster is gone from hms.conf: what was on its way is where it came from."""
    world = World(2)
    world.link_all()
    world.settle()
    node = world.nodes[HERE]
    node.send(3)
    for _ in range(2):
        forward(node, QUEUE, DLQ, limit=1)
    node.sync()

    engine = Engine(replace(node.settings, cluster=None))
    recovery = engine.recovery()
    for number, record in enumerate(node.log, 1):
        recovery.apply(*record, number << 32)
    recovery.finish()
    engine.boot(world.clock(HERE), None, "test", Effects())

    waiting = engine.state.queues[QUEUE].line.everything()
    assert len(waiting) == 2  # the third was offered, and nobody knows whether it arrived


def test_a_message_whose_id_is_there_gets_one_of_its_own():
    """A letter of another subscription has the same id; and a head that nobody can read is no
    reason to cut the link."""
    world = World(2)
    world.link_all()
    world.settle()
    node, there = world.nodes[HERE], world.nodes[THERE]
    node.send(2, properties={"Month": 5})
    for message in node.queue.line.everything():
        seq = there.engine.state.take_seqs(1)
        copy = StoredMessage.of(message.id, seq, 1, 0, 4, 0, 0, b"", is_persistent=False)
        there.engine.state.queues[DLQ].line.add([copy])
    message.payload = b"\xc1" * message.head_bytes + message.payload[message.head_bytes :]
    forward(node, QUEUE, DLQ)
    node.sync()
    world.settle()

    held = [m.id for m in there.engine.state.queues[DLQ].line.everything()]
    assert len(held) == len(set(held)) == 4
    assert node.queue.line.everything() == []


def test_what_comes_back_to_a_queue_that_is_deleted_meanwhile_is_a_dead_letter():
    """With the reason of what waited in that queue."""
    world = World(2)
    world.link_all()
    world.settle()
    node = world.nodes[HERE]
    order(node, "queue.create", name="short")
    node.send(3)
    order(node, "message.move", place=f"queue:{QUEUE}", to="short", is_all=True)
    forward(node, "short", "nowhere")
    order(node, "queue.delete", name="short")
    node.sync()
    world.settle()
    for _ in range(4):
        world.tick()

    letters = node.engine.state.queues[DLQ].line.everything()
    reasons = [message.head().node["$DeadReason"] for message in letters]
    assert reasons == ["DESTINATION_DELETED"] * 3
