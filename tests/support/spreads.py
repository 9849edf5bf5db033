"""Publications that begin to wait some subscriptions at a time, though there are few of them."""

from hms.engine.session import transactions
from hms.engine.topic import publication_run, spreading


def tiny_spreads(monkeypatch):
    """Each subscription is a slice of its own, and what a commit publishes is made ready for it."""
    monkeypatch.setattr(transactions, "SPREAD_BATCHES", 0)
    monkeypatch.setattr(publication_run, "LOOK_STEPS", 100)
    monkeypatch.setattr(spreading, "SPREAD_MIN", 0)
    monkeypatch.setattr(spreading, "SPREAD_AT_ONCE", 1)


def all_arrived(state):
    """What is on its way waits where it is to wait, as it does a few ticks later."""
    for subscription in list(state.space.subscriptions.values()) if state.spreads else ():
        spreading.give_now(state, subscription)
