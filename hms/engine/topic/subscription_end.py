"""Unsubscribing: the ways in which a subscription ends (PUBSUB SU-05, SU-11 … SU-13)."""

from hms.engine.effects import Effects
from hms.engine.messages import sizes_of
from hms.engine.queue.destinations import Subscription
from hms.engine.queue.dispatch import discard
from hms.engine.state import State
from hms.errors.catalogue import DurableNameInUse, SubscriptionNotFound
from hms.records import Cause, undefined


def end_passing(state: State, subscription: Subscription) -> None:
    """A subscription that is not durable ends; a transaction may still hold some of it."""
    subscription.is_removed = True
    state.space.remove(subscription, state.now_ms)
    state.waiting_bytes -= sizes_of(subscription.line.remove_everything())


def unsubscribe(
    state: State, destination: str, name: str, topic: str, scheme: str, fx: Effects
) -> None:
    """End a durable subscription; what waits for it is discarded and counted."""
    _, pattern = state.space.wanted(destination, topic, scheme)
    subscription = state.space.named(pattern, name, is_durable=True)
    said = destination or topic
    if subscription is None:
        raise SubscriptionNotFound(name=name, destination=said)
    if is_in_use(subscription):
        raise DurableNameInUse(name=name, destination=said)
    remove_subscription(state, subscription, Cause.UNSUBSCRIBED, fx)


def is_in_use(subscription: Subscription) -> bool:
    """It has a consumer, or an open transaction holds what one of its consumers took: it cannot end
    (JMS 3.1 §4.3.1)."""
    return bool(subscription.consumers) or subscription.line.out_count > 0


def remove_subscription(
    state: State, subscription: Subscription, cause: Cause, fx: Effects
) -> None:
    """A durable subscription ends, and what waits for it with it; what its queue has stays there
    (SU-13)."""
    line = subscription.line
    waiting = line.remove_everything()
    discard(state, subscription, waiting, cause, fx)
    state.undefine(subscription)
    fx.records.append(undefined(subscription.number))


def end_overdue(state: State, fx: Effects) -> None:
    """Durable subscriptions whose life is over go as soon as nobody uses them (SU-11)."""
    overdue = [s for s in state.space.mortal.values() if s.is_over(state.now_ms)]
    for subscription in overdue:
        if not is_in_use(subscription):
            remove_subscription(state, subscription, Cause.UNSUBSCRIBED, fx)
