"""Relaying: publications on global topics go once to each node where somebody subscribes (F-J3).

Theory of operation. Nodes tell one another what their subscribers want: patterns, selectors, and
whether a subscription is durable. At the other nodes each of these is a *proxy*: a subscription
that delivers into the *relay*, a queue of the system's own with what has to go to that node. So
what nobody wants there does not travel; what several want goes once; and what a durable subscriber
wants is kept in the log until its node has it, however long that is away. Proxies of durable
subscriptions are in the log too, so a node that boots while another one is down still keeps for
it; the others end with the link. From the relay publications go over as messages of a queue do
(moves.py), one offer after the other, so that their order stays. The node that gets one gives it to
its own subscribers and to no other node: that is why nothing can go in circles.
"""

from collections.abc import Iterable, Sequence

from hms.engine.admin.destination_lifecycle import check_definitions
from hms.engine.cluster.cluster_messages import Interest, Wish
from hms.engine.cluster.forward_names import forward_of
from hms.engine.effects import Effects
from hms.engine.log.live_index import hold, hold_together
from hms.engine.log.state_records import write
from hms.engine.messages import StoredMessage
from hms.engine.queue.destinations import PROXY_PREFIX as PROXY
from hms.engine.queue.destinations import RELAY_PREFIX as RELAY
from hms.engine.queue.destinations import Queue, Subscription
from hms.engine.queue.dispatch import discard
from hms.engine.queue.incoming import EXPIRING
from hms.engine.state import State
from hms.engine.topic import Scheme
from hms.engine.topic.choices import Group
from hms.engine.topic.publication import add_to
from hms.engine.topic.recipients import NOTHING_KNOWN, Chosen, Known
from hms.engine.topic.spreading import begin_spread, give_now, is_large
from hms.engine.topic.spreads import Part
from hms.errors.tree import HmsError
from hms.records import Cause, Definition, Placement, defined, undefined
from hms.wire.packed_messages import NODE_TOPIC

WISHES_MAX = 5000
EVERYTHING = Wish("#", Scheme.TOPIC.value, is_durable=False)
EVERYTHING_DURABLE = Wish("#", Scheme.TOPIC.value, is_durable=True)


def relay_name(index: int) -> str:
    """The queue with what has to go to a node."""
    return f"{RELAY}{index}"


def wishes(state: State) -> list[Wish]:
    """What subscribers here want of global topics; so many that they do not fit are told as one
    that wants everything: more travels then, but nothing is missed."""
    found = {
        _wish(one)
        for one in state.space.subscriptions.values()
        if not one.is_proxy and _concerns(state, one)
    }
    if len(found) <= WISHES_MAX:
        return sorted(found)
    return [EVERYTHING, EVERYTHING_DURABLE]


def _concerns(state: State, one: Subscription) -> bool:
    return one.pattern.is_wildcard or state.is_global_topic(one.pattern.topic)


def _wish(one: Subscription) -> Wish:
    selector = one.selector.text if one.selector is not None else ""
    is_kept = one.is_durable or one.queue is not None
    return Wish(one.pattern.text, one.pattern.scheme.value, is_kept, selector)


def proxies(state: State, index: int) -> list[Subscription]:
    """The subscriptions here that stand for those of a node."""
    name = f"{PROXY}{index}"
    return [s for s in state.space.subscriptions.values() if s.is_proxy and s.name.startswith(name)]


def interested(state: State, index: int, said: Interest, fx: Effects) -> Queue | None:
    """A node tells what its subscribers want now; its relay, if it has one."""
    wanted = {_name(index, wish): wish for wish in said.wishes}
    for proxy in proxies(state, index):
        if wanted.pop(proxy.name, None) is None:
            _end(state, proxy, fx)
    if not wanted:
        return state.queues.get(relay_name(index))
    relay = _relay(state, index, fx)
    for name, wish in sorted(wanted.items()):
        _begin(state, relay, name, wish, fx)
    return relay


def gone(state: State, index: int, fx: Effects) -> None:
    """A node failed: only what durable subscribers want is kept for it."""
    for proxy in proxies(state, index):
        if not proxy.is_durable:
            _end(state, proxy, fx)


def forget_strangers(state: State, known: Iterable[int], fx: Effects) -> None:
    """At boot: nothing is kept for nodes that are not in the configuration any more."""
    names = tuple(f"{PROXY}{index}:" for index in known)
    for proxy in [s for s in state.space.subscriptions.values() if s.is_proxy]:
        if not proxy.name.startswith(names):
            _end(state, proxy, fx)
    relays = {relay_name(index) for index in known}
    for queue in [q for q in state.queues.values() if q.name.startswith(RELAY)]:
        if queue.name not in relays and forward_of(queue.name) is None:
            waiting = queue.line.everything()
            for message in waiting:
                queue.line.remove(message)
            discard(state, queue, waiting, Cause.UNSUBSCRIBED, fx)


def _name(index: int, wish: Wish) -> str:
    kind = "kept" if wish.is_durable else "passing"
    return f"{PROXY}{index}:{kind}:{wish.selector}"[:1024] + f":{wish.scheme}:{wish.pattern}"


def _relay(state: State, index: int, fx: Effects) -> Queue:
    name = relay_name(index)
    if name not in state.queues:
        definition = Definition(state.take_number(), "queue", name)
        write(state, defined(definition), fx)
        state.queues[name].redelivery_limit = -1
    return state.queues[name]


def _begin(state: State, relay: Queue, name: str, wish: Wish, fx: Effects) -> None:
    """A proxy begins; one whose pattern or selector this node does not understand does not."""
    try:
        topic, pattern = state.space.wanted("", wish.pattern, wish.scheme)
    except HmsError:
        return  # no topic here is meant by it
    definition = Definition(
        state.take_number() if wish.is_durable else 0,
        "subscription",
        name,
        topic.number,
        wish.selector,
        topic_string=pattern.text,
        scheme=wish.scheme,
        queue=relay.number,
    )
    if wish.is_durable:
        check_definitions(state, definition.size_bytes)
        write(state, defined(definition), fx)
    else:
        made = Subscription(topic, definition, queue=relay)
        state.space.add(made, state.now_ms)


def _end(state: State, proxy: Subscription, fx: Effects) -> None:
    if proxy.is_durable:
        write(state, undefined(proxy.number), fx)
    else:
        state.space.remove(proxy, state.now_ms)


# at the node that gets them


def topic_of(message: StoredMessage) -> str:
    """On which topic it was published."""
    found = message.head().node.get(NODE_TOPIC, "")
    return found if isinstance(found, str) else ""


def give_out(
    state: State, topic: str, messages: list[StoredMessage], known: Known = NOTHING_KNOWN
) -> tuple[list[Placement], list[Queue | Subscription]]:
    """Publications of another node, all on one topic, to the subscribers here: where the log has
    them then, and the places to dispatch. Two that deliver into one queue get it once. known: what
    selectors say, where they were asked before."""
    if not state.is_global_topic(topic):
        return [], []
    audience = state.space.audience(topic, state.now_ms)
    uses = EXPIRING if any(m.expires_at_ms for m in messages) else 0
    state.looking.asked += audience.asked_by(len(messages))
    if state.spreads or is_large(state, len(audience.subscriptions), len(messages), 0, uses):
        return _spread(state, audience.groups(messages, known), messages, uses)
    placements: list[Placement] = []
    touched: list[Queue | Subscription] = []
    for place, chosen in _given(audience.choose(messages, known), messages):
        touched.append(place)
        give_now(state, place)
        before = place.line.size_bytes
        place.line.add(chosen)
        state.waiting_bytes += place.line.size_bytes - before
        placements += _offered(place, messages, chosen)
    return placements, touched


def _spread(
    state: State,
    groups: Sequence[tuple[Group, list[StoredMessage]]],
    messages: list[StoredMessage],
    uses: int,
) -> tuple[list[Placement], list[Queue | Subscription]]:
    """The same where it is much: it begins to wait in slices (topic/spreads.py), but in queues."""
    parts, placements, queued = list[Part](), list[Placement](), list[Chosen]()
    holders: dict[int, list[frozenset[int]]] = {}
    for group, chosen in groups:
        if group.plain:
            parts.append((group.plain, chosen))
        single = [one for one in group.special if one.queue is None and not one.is_proxy]
        parts += [([one], chosen) for one in single]
        queued += [(one, chosen) for one in group.special if one.queue is not None]
        numbers = group.numbers | {one.number for one in single if one.is_durable}
        if numbers and messages[0].is_persistent:
            mask = _bitmap(messages, chosen)
            placements += [Placement(number, mask) for number in sorted(numbers)]
            for message in chosen:
                holders.setdefault(message.id, []).append(numbers)
    for message in messages if holders else ():
        hold_together(message, holders.get(message.id, ()))
    begin_spread(state, parts, {}, uses)
    touched: list[Queue | Subscription] = []
    for place, chosen in _given(queued, messages):
        touched.append(place)
        add_to(state, place, chosen, {})
        placements += _offered(place, messages, chosen)
    return placements, touched


def _offered(
    place: Queue | Subscription, messages: list[StoredMessage], chosen: list[StoredMessage]
) -> list[Placement]:
    """What was added to a place: consumers of a queue are asked, and the log keeps it there."""
    if isinstance(place, Queue):
        place.offer(chosen)
    if not (place.is_durable and messages[0].is_persistent):
        return []
    hold(chosen, place.number)
    return [Placement(place.number, _bitmap(messages, chosen))]


def _given(
    choices: Sequence[Chosen], messages: list[StoredMessage]
) -> list[tuple[Queue | Subscription, list[StoredMessage]]]:
    """What each place gets: all that any of the subscriptions chose that deliver into it."""
    found: dict[int, tuple[Queue | Subscription, list[list[StoredMessage]]]] = {}
    for subscription, chosen in choices:
        place = subscription.queue or subscription
        if chosen and not subscription.is_proxy:
            found.setdefault(id(place), (place, []))[1].append(chosen)
    return [(place, _together(each, messages)) for place, each in found.values()]


def _together(
    each: list[list[StoredMessage]], messages: list[StoredMessage]
) -> list[StoredMessage]:
    if len(each) == 1:
        return each[0]
    ids = {m.id for chosen in each for m in chosen}
    return [m for m in messages if m.id in ids]


def _bitmap(messages: Sequence[StoredMessage], chosen: Sequence[StoredMessage]) -> bytes:
    if len(chosen) == len(messages):
        return b""
    ids = {m.id for m in chosen}
    value = sum(1 << i for i, m in enumerate(messages) if m.id in ids)
    return value.to_bytes((len(messages) + 7) // 8, "little")
