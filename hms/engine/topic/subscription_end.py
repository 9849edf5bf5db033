"""Subscription end: the ways in which a subscription ends (PUBSUB SU-05, SU-11 … SU-13)."""

from hms.engine.effects import Effects
from hms.engine.log.state_records import write
from hms.engine.queue.destinations import Subscription
from hms.engine.queue.dispatch import discard
from hms.engine.queue.purge_slices import begin_ending, end_later, lift_ending, purge_some
from hms.engine.state import State
from hms.engine.topic.spreading import give_now
from hms.errors.catalogue import DurableNameInUse, SubscriptionNotFound
from hms.records import Cause, undefined


def end_passing(state: State, subscription: Subscription, fx: Effects) -> None:
    """A subscription that is not durable ends; a transaction may still hold some of it."""
    give_now(state, subscription)
    subscription.is_removed = True
    state.space.remove(subscription, state.now_ms)
    end_later(state, subscription, Cause.UNSUBSCRIBED, fx)


def unsubscribe(
    state: State, destination: str, name: str, topic: str, scheme: str, fx: Effects
) -> None:
    """End a durable subscription; what waits for it is discarded and counted."""
    subscription = _unused(state, destination, name, topic, scheme)
    remove_subscription(state, subscription, Cause.UNSUBSCRIBED, fx)


def unsubscribe_some(
    state: State, connection: int, asked: tuple[str, str, str, str], fx: Effects
) -> bool:
    """Before unsubscribe(), which refuses for the same reasons: a slice of what waits, and whether
    there was one."""
    subscription = _unused(state, *asked)
    give_now(state, subscription)
    if not purge_some(state, subscription, Cause.UNSUBSCRIBED, fx, state.now_ms):
        lift_ending(state, connection)
        return False
    begin_ending(state, connection, subscription)
    return True


def _unused(state: State, destination: str, name: str, topic: str, scheme: str) -> Subscription:
    _, pattern = state.space.wanted(destination, topic, scheme)
    subscription = state.space.named(pattern, name, is_durable=True)
    said = destination or topic
    if subscription is None:
        raise SubscriptionNotFound(name=name, destination=said)
    if is_in_use(subscription):
        raise DurableNameInUse(name=name, destination=said)
    return subscription


def is_in_use(subscription: Subscription) -> bool:
    """It has a consumer, or an open transaction holds what one of its consumers took: it cannot end
    (JMS 3.1 §4.3.1)."""
    return bool(subscription.consumers) or subscription.line.out_count > 0


def remove_subscription(
    state: State, subscription: Subscription, cause: Cause, fx: Effects
) -> None:
    """A durable subscription ends, and what waits for it with it; what its queue has stays there
    (SU-13)."""
    give_now(state, subscription)
    line = subscription.line
    waiting = line.remove_everything()
    discard(state, subscription, waiting, cause, fx)
    write(state, undefined(subscription.number), fx)


def end_overdue(state: State, fx: Effects) -> None:
    """Durable subscriptions whose life is over go as soon as nobody uses them (SU-11)."""
    overdue = [s for s in state.space.expiring.values() if s.is_over(state.now_ms)]
    for subscription in overdue:
        if not is_in_use(subscription):
            remove_subscription(state, subscription, Cause.UNSUBSCRIBED, fx)
