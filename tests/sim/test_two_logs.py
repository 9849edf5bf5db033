"""Two logs and one client core with both addresses: what a client is told is true, or in doubt.

HMS_SIM_SEED=7 pytest tests/sim -k two_logs      one run; HMS_SIM_RUNS=1000 so many from there on
"""

import os

import pytest

from hms.client.core.link import Link
from hms.client.send_buffer import SendFrame
from hms.client.session_state import _Commit
from tests.sim.strangers import Strangers
from tests.sim.strangers_books import DONE, DOUBT
from tests.support.effort import tries

RUNS, RUNS_MAX = 20, 40


def test_what_clients_of_two_strangers_are_told_is_true_or_in_doubt(capsys):
    """Nodes killed in turn under sends, commits and acknowledgements: none doubled, none lost."""
    first, kills, doubts, done = int(os.environ.get("HMS_SIM_SEED", "0")), 0, 0, 0
    usual = 1 if "HMS_SIM_SEED" in os.environ else tries(RUNS)
    runs = int(os.environ.get("HMS_SIM_RUNS", usual))
    for seed in range(first, first + runs):
        world = Strangers(seed)

        faults = world.run()

        assert not faults, f"seed {seed}: {faults[:5]}"
        kills += world.kills
        done += world.books.outcomes[f"sent {DONE}"]
        doubts += world.books.outcomes[f"sent {DOUBT}"]
    with capsys.disabled():
        print(f"\nstrangers: {runs} seeds, {kills} kills, {doubts} sends and commits in doubt")
    assert done > doubts
    assert kills > runs
    assert doubts or runs < RUNS


def _unbound(patch, which):
    """What is asked of that kind may be repeated at any log."""
    ask = Link.ask

    def unbound(self, kind, payload, asked, count=1):
        if isinstance(asked, which):
            asked.is_bound = False
        return ask(self, kind, payload, asked, count)

    patch.setattr(Link, "ask", unbound)


def send_repeated_at_a_stranger(patch):
    """What was not confirmed goes to whatever log answers."""
    _unbound(patch, SendFrame)


def commit_decided_by_a_stranger(patch):
    """Another log is asked whether the commit took effect, and knows nothing of it."""
    _unbound(patch, _Commit)


def anything_repeated_at_a_stranger(patch):
    """The client does not look which log answers."""
    patch.setattr(Link, "held", lambda _self, _log: iter(()))


PLANTS = {
    send_repeated_at_a_stranger: ("doubled:",),
    commit_decided_by_a_stranger: ("untrue:", "doubled:"),
    anything_repeated_at_a_stranger: ("doubled:", "untrue:"),
}
"""What is planted, and the faults of which at least one must show it."""


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_client_that_repeats_at_a_stranger_is_caught(plant, monkeypatch, record_property):
    """A checker that never failed is not trusted."""
    plant(monkeypatch)

    runs = _runs_until(PLANTS[plant])

    record_property("runs", runs)
    print(plant.__name__, runs)
    assert runs is not None


def _runs_until(wanted):
    """How many runs it took until such a fault came up; None: none did."""
    for seed in range(RUNS_MAX):
        if any(fault.startswith(wanted) for fault in Strangers(seed).run()):
            return seed + 1
    return None
