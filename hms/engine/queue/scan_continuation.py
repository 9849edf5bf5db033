"""Scan continuation: what consumers with selectors find in a slice is delivered, and who waited
for it is told. See hms/engine/groups/scan_slices.py."""

from hms.engine.effects import Effects, Reply
from hms.engine.queue.destinations import Queue
from hms.engine.queue.dispatch import dispatch
from hms.engine.session.session_objects import Consumer
from hms.engine.state import State
from hms.errors.catalogue import TooManyRequests

__all__ = ["answer", "answer_all", "go_on"]

REPLIES_MAX = 64
"""So many polls of one consumer may wait until it has looked at everything."""


def go_on(state: State, fx: Effects) -> None:
    """One slice, of those who are behind."""
    state.looking.release_some()
    if not state.looking.behind:
        return
    state.looking.refill()
    looked = state.looking.go_on()
    for queue in dict.fromkeys(one.queue for one in looked):
        assert isinstance(queue, Queue), "only queues have candidates"
        dispatch(state, queue, fx)
    for one in looked:
        if not one.is_behind:
            fx.out += one.replies
            one.replies = []


def answer(consumer: Consumer, reply: Reply, fx: Effects) -> None:
    """Answer a poll of a consumer when its selector has looked at everything that waits."""
    place = consumer.place
    found = place.candidates.get(consumer) if isinstance(place, Queue) else None
    if found is None or not found.is_behind:
        fx.out.append(reply)
        return
    count = len(found.replies)
    if count >= REPLIES_MAX:
        raise TooManyRequests(what="polls of a consumer", count=count, limit=REPLIES_MAX)
    found.replies.append(reply)


def answer_all(consumer: Consumer, fx: Effects) -> None:
    """Nothing more comes for this consumer."""
    place = consumer.place
    found = place.candidates.get(consumer) if isinstance(place, Queue) else None
    if found is not None:
        fx.out += found.replies
        found.replies = []
