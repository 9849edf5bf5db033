"""Departures: consumers that closed while their application still has messages.

In a CLIENT session what was received stays acknowledgeable until the session closes, whatever its
consumer does (F-B2). So such a consumer leaves its place, and keeps what its client said that the
application has; the rest goes back. It ends with the last of these messages, when they are given
back, or with its session.
"""

from hms.constants import AckMode
from hms.engine.effects import Effects
from hms.engine.queue.destinations import Subscription
from hms.engine.queue.settlement import Return, give_back, take_out
from hms.engine.session.session_objects import Consumer
from hms.engine.state import State

__all__ = ["depart", "forget", "forget_if_done", "keeps_messages"]


def keeps_messages(consumer: Consumer) -> bool:
    """Whether its application has messages that it may go on to acknowledge. What is out of a
    subscription that ends with this consumer is nobody's any more."""
    place = consumer.place
    if consumer.has_left or consumer.session.ack_mode != AckMode.CLIENT:
        return False
    if isinstance(place, Subscription) and not place.is_durable and len(place.consumers) == 1:
        return False
    return any(one in consumer.out for one in consumer.seen)


def depart(state: State, consumer: Consumer, fx: Effects) -> None:
    """It gives back what its application has not seen and is sent nothing more; the caller takes it
    out of its place's consumers and dispatches."""
    unseen = [(one, one) for one in consumer.out if one not in consumer.seen]
    give_back(state, consumer.place, take_out(consumer, unseen), Return.RELEASED, fx)
    consumer.credit = 0
    consumer.has_left = True
    consumer.place.left.append(consumer)


def forget(consumer: Consumer) -> None:
    """One that has left has nothing any more."""
    consumer.place.left.remove(consumer)
    consumer.session.consumers.remove(consumer)
    del consumer.connection.consumers[consumer.handle]


def forget_if_done(consumer: Consumer) -> None:
    """The same, if it is so."""
    if consumer.has_left and not consumer.out:
        forget(consumer)
