"""One interpreter of records: a second engine that follows the log has what the first one has.

The commands are those of the boot fuzz (random_commands.py): whatever a node can be asked. Each
record goes to the follower as it is written, and behind every command both are compared.

    HMS_FOLLOW_RUNS=200 python -m pytest tests/sim -k followed_log      so many seeds
"""

import os
from dataclasses import replace

import pytest

from hms.engine.engine import Engine
from hms.engine.log.logged_place import LoggedPlace
from hms.engine.log.recovery import Recovery
from hms.engine.session.transactions import open_works
from hms.store.journal import Journal
from tests.sim.random_commands import SETTINGS, World
from tests.support.effort import tries
from tests.support.followed import disagreements
from tests.support.spreads import all_arrived, tiny_spreads

RUNS = int(os.environ.get("HMS_FOLLOW_RUNS", max(2, tries(3))))
RUNS_MAX = 20


class Follower:
    """Takes the records of a node, which are numbered on over its lives."""

    def __init__(self, world):
        self.engine = Engine(replace(SETTINGS, paging_share=world.paging_share))
        self.recovery = self.engine.recovery()
        self.records = 0

    def take(self, kind, parts, position):
        """A record as it was written."""
        self.recovery.apply(kind, b"".join(parts), position)
        self.records += 1


class Followed(World):
    """A world that compares its node with the follower behind each command."""

    def __init__(self, seed, folder, commands=500):
        super().__init__(seed, folder, commands)
        self.follower = Follower(self)
        self.compared = 0

    def _one(self, node, frame):
        super()._one(node, frame)
        if self.rng.random() < 0.02:  # as a segment's dictionary may come at any time
            record = node.engine.dictionary()
            self.follower.take(record.type, record.parts, 0)
        self._compare(node)

    def _serve(self, node):
        self._compare(node)
        super()._serve(node)
        self._compare(node)

    def _compare(self, node):
        all_arrived(node.engine.state)
        found = list(disagreements(node.engine, self.follower.recovery))
        assert not found, found[:3]
        self.compared += 1


@pytest.fixture
def tapped(monkeypatch):
    """What a journal appends goes to the follower of the world at hand."""
    append, worlds = Journal.append, []

    def tap(self, kind, count, parts):
        position = append(self, kind, count, parts)
        if worlds:
            worlds[-1].follower.take(kind, parts, position)
        return position

    monkeypatch.setattr(Journal, "append", tap)
    return worlds


def test_a_second_engine_that_follows_the_log_has_the_same_state(
    tapped, tmp_path, record_property, monkeypatch
):
    """A standby takes over what it has read; recovery, live work and it may not differ."""
    records = compared = 0
    for seed in range(RUNS):
        if seed == RUNS // 2:
            tiny_spreads(monkeypatch)
        world = Followed(seed, tmp_path)
        tapped.append(world)
        assert world.run() == ""
        records += world.follower.records
        compared += world.compared
        _takes_over(world.follower)
    record_property("records", records)
    print(f"{RUNS} seeds: {records} records, compared {compared} times")
    assert records > 200 * RUNS


def _takes_over(follower):
    """All that the log has is there when it is taken over: waiting, offered, or with a branch."""
    recovery, state = follower.recovery, follower.engine.state
    logged = {
        n: {*one.waiting, *one.out, *_unopened(one)}
        for n, one in recovery.places.items()
        if one.number
    }
    recovery.finish()
    found = {n: {m.id for m in state.places[n].line.everything()} for n in logged}
    for work in open_works(state):
        for place, message in work.acknowledged:
            found[place.number].add(message.id)
    for number, message_id in state.moves.undecided:
        found[number].add(message_id)
    retained = state.space.place
    if retained is not None:  # of two for a topic the later one counts
        found.pop(retained.number, None), logged.pop(retained.number, None)
    assert found == logged


def _unopened(place):
    return (i for block in place.unopened() for i in range(block.first_id, block.last_id + 1))


def _deliveries_not_counted(patch):
    patch.setattr(LoggedPlace, "_count", lambda *_: None)


def _discards_forgotten(patch):
    patch.setattr(Recovery, "leave", lambda *_: None)


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (_deliveries_not_counted, "came"),
        (_discards_forgotten, "the log has"),
    ],
)
def test_a_follower_that_forgets_something_is_found(tapped, tmp_path, monkeypatch, plant, said):
    """A comparison that never failed is not trusted."""
    plant(monkeypatch)
    for seed in range(RUNS_MAX):
        world = Followed(seed, tmp_path)
        tapped.append(world)
        if said in world.run():
            return
    raise AssertionError("it is not found")
