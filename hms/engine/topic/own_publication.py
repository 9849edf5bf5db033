"""Own publications: what the node itself tells those who subscribe to its topics, below HMS/.

They are not persistent, are not retained, and wait for nothing. Where there is no room for one, it
is missed: who has to know asks the node.
"""

from collections.abc import Mapping

from hms.engine.effects import Effects
from hms.engine.flow.overflow_policy import make_room
from hms.engine.queue.dispatch import dispatch
from hms.engine.queue.incoming import accepted
from hms.engine.session.deduplication import ProducerMemory
from hms.engine.session.session_objects import Connection, PendingBatch, Producer, Session
from hms.engine.state import State
from hms.engine.topic.audience import check_publication
from hms.engine.topic.publication import store_publication
from hms.errors.tree import HmsError
from hms.wire.packed_messages import KIND_TEXT, ROW, Head, Row, encode_head

__all__ = ["publish_own"]


def publish_own(
    state: State, topic: str, properties: Mapping[str, str | int], text: str, fx: Effects
) -> bool:
    """Whether somebody gets it; without subscriptions nothing is made."""
    space, now_ms = state.space, state.now_ms
    audience = space.audience(topic, now_ms)
    if not audience.subscriptions:
        return False
    head, body = encode_head(Head(dict(properties))), text.encode()
    row = Row(len(head), len(body), kind=KIND_TEXT)
    pack = memoryview(b"".join((ROW.pack(*row), head, body)))
    producer = Producer(Session(Connection(0, 0), 0, 0, ""), 0, space.base, ProducerMemory())
    producer.topic = topic
    try:
        node = producer.node = space.opened(topic, now_ms)
    except HmsError:  # one topic too many
        return False
    try:
        check_publication(state, producer, [row], pack, is_persistent=False)
        first_id = state.take_ids(1, fx)
        batch = PendingBatch(producer, first_id, 1, now_ms, is_persistent=False, pack=pack)
        stored = store_publication(state, batch, accepted(pack, [row]), 0, fx)
    except HmsError:  # no room
        return False
    finally:
        space.closed(node, now_ms)
    for place in stored.touched:
        dispatch(state, place, fx)
    if state.is_guarded:
        make_room(state, stored.touched, fx)
    return True
