"""A move between two nodes, killed at each of its records and cut at each of its words, on both
sides: exactly one copy, always (C05).

A scenario is written as steps: a word arrives, a log is synced up to one more record. Every prefix
of it is run anew and ends in a crash of either node or a cut; then the nodes find one another.
"""

from itertools import product

import pytest

from tests.support.cluster_rig import World

SOURCE, TARGET = 1, 2


def _one(world):
    world.nodes[SOURCE].send(1)


def _three(world):
    for priority in (1, 9, 4):
        world.nodes[SOURCE].send(1, priority=priority)


def _mixed(world):
    world.nodes[SOURCE].send(2)
    world.nodes[SOURCE].send(2, is_persistent=False)


def _expiring(world):
    world.nodes[SOURCE].send(3, ttl_ms=60_000)


SCENARIOS = {
    "one message": (_one, {}),
    "three of different priorities": (_three, {}),
    "one by one": (_three, {"request_max": 1}),
    "persistent and not": (_mixed, {}),
    "expiring ones": (_expiring, {}),
    "refused": (_three, {"limits": {TARGET: {"messages_max": 1}}}),
}
ENDS = (
    "source dies",
    "target dies",
    "both die",
    "cut",
    "source cleans and dies",
    "target cleans and dies",
)


def _begin(name):
    """The scenario's world, with messages at the source and a consumer at the target."""
    fill, options = SCENARIOS[name]
    world = World(2, **options)
    world.link_all()
    world.settle()
    fill(world)
    world.nodes[SOURCE].sync()
    world.nodes[TARGET].consume(credit=0)
    world.now_ms += 1000
    for node in world.nodes.values():
        node.tick()
    return world


def _next_step(world, disk):
    """What happens next, the same each time: a record is synced, or a word arrives."""
    kinds = (_next_sync, _next_word) if disk == "fast disk" else (_next_word, _next_sync)
    return kinds[0](world) or kinds[1](world)


def _next_sync(world):
    for node in world.nodes.values():
        if node.durable < len(node.log):
            return lambda: node.sync(node.durable + 1)
        if node.said:
            return node.sync
    return None


def _next_word(world):
    for wire in sorted(world.wires):
        if world.wires[wire]:
            return lambda: world.deliver_one(wire, is_synced=False)
    return None


def _length(name, disk):
    """How many steps the scenario has."""
    world, count = _begin(name), 0
    while (step := _next_step(world, disk)) is not None:
        step()
        count += 1
        assert count < 1000
    return count


def _persistent(world):
    """Ids of messages that may not be lost."""
    return {
        m.id
        for node in world.nodes.values()
        for m in [*node.queue.line.everything(), *_offered(node)]
        if m.is_persistent
    }


def _offered(node):
    offers = node.engine.state.moves.offers()
    return [m for offer in offers for m in offer.messages]


def _end(world, how):
    if how == "cut":
        world.unlink(SOURCE, TARGET)
        world.link(SOURCE, TARGET)
        return
    if "cleans" in how:
        world.nodes[SOURCE if "source" in how else TARGET].clean()
    dead = {"source": (SOURCE,), "target": (TARGET,), "both": (SOURCE, TARGET)}[how.split()[0]]
    world.unlink(SOURCE, TARGET)
    for index in dead:
        world.nodes[index].boot()
    world.link(SOURCE, TARGET)


def _check(world, wanted, *, is_over):
    copies = world.copies()
    assert all(count == 1 for count in copies.values()), copies
    if is_over:
        assert wanted <= set(copies), "a message is lost"
        assert not any(node.undecided() for node in world.nodes.values())
    for node in world.nodes.values():
        line = node.queue.line
        assert line.out_count == len(node.undecided()) + sum(
            len(c.out) for c in node.queue.consumers
        )
        assert node.engine.state.waiting_bytes == line.size_bytes


@pytest.mark.parametrize("disk", ["fast disk", "slow disk"])
@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_move_that_is_killed_or_cut_anywhere_leaves_exactly_one_copy(name, how, disk):
    """P6: a queue message is in exactly one place in the cluster, at every instant."""
    for until in range(_length(name, disk) + 1):
        world = _begin(name)
        wanted = _persistent(world)
        for _ in range(until):
            _next_step(world, disk)()
            _check(world, wanted, is_over=False)
        _end(world, how)
        _check(world, wanted, is_over=False)
        world.settle()
        for _ in range(3):
            world.tick()
        _check(world, wanted, is_over=True)


def test_there_are_as_many_cells_as_the_suite_asks_for():
    """A scenario that loses its steps would pass without testing anything."""
    cells = {name: _length(name, "slow disk") + 1 for name in SCENARIOS}

    assert all(count >= 7 for count in cells.values()), cells
    assert sum(cells.values()) * len(ENDS) >= 400


def _forget_answers(monkeypatch):
    monkeypatch.setattr("hms.engine.cluster.moves.Moves.answered", lambda *_, **__: None)


def _serve_what_is_offered(monkeypatch):
    monkeypatch.setattr("hms.engine.cluster.move_recovery.OffersFound._add", lambda *_: None)


def _do_not_restate(monkeypatch):
    monkeypatch.setattr("hms.engine.log.compaction.restate", lambda *_: None)


def _clean_without_the_mark(monkeypatch):
    monkeypatch.setattr("hms.engine.cluster.move_recovery.OffersFound.stays", lambda *_: None)


def _say_before_it_is_durable(monkeypatch):
    from tests.support.cluster_rig import Node

    run = Node.run

    def hasty(self, call):
        fx = run(self, call)
        self.said = [(0, node, data) for _, node, data in self.said]
        for _, node, data in self.said:
            self.world.carry(self.index, node, data)
        self.said = []
        return fx

    monkeypatch.setattr(Node, "run", hasty)


PLANTED = (
    _forget_answers,
    _serve_what_is_offered,
    _do_not_restate,
    _clean_without_the_mark,
    _say_before_it_is_durable,
)


@pytest.mark.parametrize("plant", PLANTED)
def test_the_cells_catch_a_fault_that_was_planted(plant, monkeypatch):
    """A checker that never failed is not trusted."""
    plant(monkeypatch)
    for name, how in product(("three of different priorities", "one by one"), ENDS):
        try:
            test_a_move_that_is_killed_or_cut_anywhere_leaves_exactly_one_copy(
                name, how, "slow disk"
            )
        except (AssertionError, KeyError):
            return
    raise AssertionError("it is not found")
