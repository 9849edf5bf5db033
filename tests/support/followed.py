"""A log that is followed: what a recovery has made of it so far, beside the engine that writes it.

The engine knows more: consumers, open transactions, what is not persistent, and of which message
the consumer was lost, which no record tells. What both know has to be the same.
"""

from collections.abc import Iterator
from typing import Any

from hms.engine.engine import Engine
from hms.engine.log.logged_place import LoggedPlace
from hms.engine.log.recovery import Recovery
from hms.engine.messages import StoredMessage
from hms.engine.queue.destinations import Queue, Subscription
from hms.engine.queue.in_flight_view import in_flight


def disagreements(live: Engine, followed: Recovery) -> Iterator[str]:
    """What engine and follower do not have alike."""
    state, other = live.state, followed.state
    for what, here, there in (
        ("definitions", _definitions(live), _definitions_of(other)),
        ("identity", state.identity, other.identity),
        ("audit", (state.audit.number, state.audit.head), (other.audit.number, other.audit.head)),
        ("decisions", state.decisions.decided, other.decisions.decided),
        ("directory", state.moves.directory, other.moves.directory),
        ("life", (state.moves.life, state.moves.incarnation), _life(followed)),
        ("committed branches", list(state.branches.committed), list(other.branches.committed)),
        ("branches", *_branches(live, followed)),
        ("offers", *_offers(live, followed)),
        ("reserved ids", state.ids.reserved_below, other.ids.reserved_below),
    ):
        if here != there:
            yield f"{what}: {here} at the node, {there} in its log"
    yield from _batches(live, followed)
    for number, place in state.places.items():
        logged = followed.places.get(number) or LoggedPlace(number)
        yield from _place(live, place, logged, _awaiting_page_in(live, place), followed)


def _definitions(live: Engine) -> dict[int, Any]:
    return _definitions_of(live.state)


def _definitions_of(state: Any) -> dict[int, Any]:
    return {one.number: one for one in state.definitions()}


def _life(followed: Recovery) -> tuple[int, int]:
    moves = followed.state.moves
    return moves.life, moves.incarnation


def _branches(live: Engine, followed: Recovery) -> tuple[Any, Any]:
    here = {
        b.xid: (b.state, b.serial, sorted(s.first_id for s in b.work.sends if s.is_persistent))
        for b in live.state.branches.in_doubt()
    }
    there = {
        b.xid: (b.state, b.serial, sorted(s.first_id for s in b.work.sends))
        for b in followed.branches.every()
    }
    heuristic = {x for x, (state, *_) in here.items() if state.value.startswith("heuristically")}
    for both in (here, there):  # what it sent is no concern any more
        both.update({x: (*both[x][:2], []) for x in heuristic if x in both})
    return here, there


def _offers(live: Engine, followed: Recovery) -> tuple[Any, Any]:
    def peers(engine: Any) -> dict[int, Any]:
        peers = engine.state.moves.peers.items()
        return {i: (p.next_offer, p.store) for i, p in peers if p.store or p.next_offer > 1}

    here = {
        (number, id_): (offer.peer, offer.number)
        for (number, id_), offer in live.state.moves.undecided.items()
        if next(m for m in offer.messages if m.id == id_).is_persistent
    }
    return (here, peers(live)), (followed.offers.undecided, peers(followed))


def _batches(live: Engine, followed: Recovery) -> Iterator[str]:
    """Batches of producers that both know; the log knows nothing of those that are not durable."""
    keys = live.state.memories.keys()
    there = {(p.client_uid, p.handle): p for p in followed.state.memories.producers_taken(keys)}
    for here in live.state.memories.producers_taken(keys):
        known = there.get((here.client_uid, here.handle))
        if known is not None and known.recent:
            batches = {first: rest for first, *rest in here.recent}
            for first, *rest in known.recent:
                if batches.get(first, rest) != rest:
                    yield f"batch {first} of {here.handle}: {batches[first]}, the log has {rest}"


def _awaiting_page_in(live: Engine, place: Queue | Subscription) -> set[int]:
    """What has left its line and waits for its body."""
    return {one.message.id for one in live.state.awaiting_page_in if one.place is place}


def _place(
    live: Engine,
    place: Queue | Subscription,
    logged: LoggedPlace,
    awaiting_page_in: set[int],
    followed: Recovery,
) -> Iterator[str]:
    line, name = place.line, f"{place.name} ({place.number})"
    waiting = _kept(line.everything())
    out = _kept(in_flight(live.state, place).values())
    out |= {
        m.id: m
        for offer in live.state.moves.offers()
        if offer.place is place
        for m in offer.messages
        if m.is_persistent
    }
    logged.open_all()
    told = logged.waiting | logged.out
    if (waiting.keys() | out.keys()) - awaiting_page_in != told.keys() - awaiting_page_in:
        yield f"{name}: {sorted(waiting)} and out {sorted(out)}, the log has {sorted(told)}"
        return
    if missing := [i for i in out if i not in logged.out]:
        yield f"{name}: {missing} are out, and wait in the log"
    for message_id, message in (waiting | out).items():
        if message_id in awaiting_page_in:
            continue
        here, there = _facts(message), _facts(told[message_id])
        if here != there:
            yield f"{name}: message {message_id:x} is {here}, in the log {there}"
        deliveries, attempts = line.history.get(message_id, (0, 0))
        known = logged.history.get(message_id, (0, 0))
        is_offered = (place.number, message_id) in followed.offers.undecided
        is_lost = message_id in waiting and message_id in logged.out and not is_offered
        if (deliveries, attempts) != (known[0] + is_lost, known[1]):
            yield f"{name}: {message_id:x} came {deliveries, attempts}, in the log {known}"
    for message_id, due_ms in logged.due.items():
        message = waiting.get(message_id)
        if due_ms > live.state.now_ms and message is not None and line.due_ms(message) != due_ms:
            yield f"{name}: {message_id:x} is due {line.due_ms(message)}, in the log {due_ms}"


def _kept(messages: Any) -> dict[int, StoredMessage]:
    return {m.id: m for m in messages if m.is_persistent}


def _facts(message: StoredMessage) -> tuple[int, ...]:
    return (
        message.seq,
        message.timestamp_ms,
        message.expires_at_ms,
        message.priority,
        message.kind,
        message.length,
        -1 if message.block is None else message.block.position(message.slot),
    )
