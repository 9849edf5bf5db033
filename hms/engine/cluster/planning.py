"""Planning: whom a node asks for messages of a global queue, and to whom it pushes some. Pure.

A queue's buffer is its consumers times GQTHR (F-J5). What a node has beyond its buffer is its
surplus; what it lacks it asks for where the surplus is largest, at most GQMAXREQ in one request
(F-J6). Only a surplus is given away, so a message moved to fill a buffer is not reclaimed:
that is what keeps messages from going to and fro, and a quarter of a buffer has to be missing
before anything is asked for. While nobody has a surplus, those without consumers are asked in
advance: what arrives there next has no other way to go.

A queue of GQFULL or more gives to shorter ones, unasked, what it has above the mean (F-J7). Every
node reckons the same mean and gives each shorter one its share, so several full queues do not
flood one empty queue together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hms.engine.cluster.cluster_settings import GlobalQueue, Scope

ASKED_IN_ADVANCE_MAX = 8
"""Nodes without a surplus that are asked for what comes next."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What a node tells of one global queue. length: messages that wait; rate: that arrived there
    in a second; bytes: that they take."""

    length: int
    consumers: int = 0
    rate: int = 0
    bytes: int = 0
    is_taking: bool = True
    """Whether it can take messages: it is neither drained nor full."""


class Request(NamedTuple):
    """So many messages for, or to, a node."""

    peer: int
    most: int


def buffer_of(queue: GlobalQueue, consumers: int) -> int:
    """How many messages the queue should have ready."""
    return consumers * queue.threshold


def surplus_of(queue: GlobalQueue, figures: Figures) -> int:
    """How many messages a node can give away without missing them."""
    if queue.scope is Scope.LOCAL_ONLY:
        return 0
    if queue.scope is Scope.LOCAL_PREFERRED and figures.consumers:
        return 0
    return max(0, figures.length - buffer_of(queue, figures.consumers))


def requests(
    queue: GlobalQueue, own: Figures, peers: Mapping[int, Figures], coming: int = 0
) -> list[Request]:
    """Whom to ask, and for how many; coming: messages that are under way to this queue."""
    wanted = buffer_of(queue, own.consumers)
    missing = wanted - own.length - coming
    is_short = missing > 0 and 4 * missing >= wanted
    if queue.scope is Scope.LOCAL_ONLY or not own.is_taking or not is_short:
        return []
    rich = {peer: surplus_of(queue, theirs) for peer, theirs in peers.items()}
    order = sorted((p for p in rich if rich[p]), key=lambda p: (-rich[p], p))
    asked: list[Request] = []
    for peer in order:
        count = min(missing, rich[peer], queue.request_max)
        asked.append(Request(peer, count))
        missing -= count
        if missing <= 0:
            return asked
    known = {request.peer for request in asked}
    return asked + _in_advance(queue, missing, {p: f for p, f in peers.items() if p not in known})


def _in_advance(queue: GlobalQueue, missing: int, peers: Mapping[int, Figures]) -> list[Request]:
    """Ask those that have no use for what arrives there, the busiest first."""
    idle = sorted(
        (p for p, f in peers.items() if not f.consumers), key=lambda p: (-peers[p].rate, p)
    )
    chosen = idle[:ASKED_IN_ADVANCE_MAX]
    if not chosen:
        return []
    share = min(queue.request_max, -(-missing // len(chosen)))
    return [Request(peer, share) for peer in chosen]


def pushes(
    queue: GlobalQueue, own: Figures, peers: Mapping[int, Figures], movable: int
) -> list[Request]:
    """To whom to push, and how many; movable: those that did not arrive by a move just now."""
    targets = {peer: theirs for peer, theirs in peers.items() if theirs.is_taking}
    if not queue.full or own.length < queue.full or queue.scope is Scope.LOCAL_ONLY or not targets:
        return []
    mean = (own.length + sum(f.length for f in targets.values())) // (1 + len(targets))
    above = min(surplus_of(queue, own), own.length - mean, movable)
    if above < max(2, queue.full // 8):
        return []
    return _shares(queue, above, {p: mean - f.length for p, f in targets.items()})


def _shares(queue: GlobalQueue, above: int, missing: Mapping[int, int]) -> list[Request]:
    """What is above the mean, shared out by what each of the shorter queues lacks."""
    short = {peer: lack for peer, lack in missing.items() if lack > 0}
    total = sum(short.values())
    found = [Request(p, min(queue.request_max, above * short[p] // total)) for p in sorted(short)]
    return [request for request in found if request.most]


def drains(own: Figures, peers: Mapping[int, Figures], request_max: int) -> list[Request]:
    """Where everything goes before a node is taken away: to those that consume, then to all."""
    targets = {peer: figures for peer, figures in peers.items() if figures.is_taking}
    chosen = [p for p in sorted(targets) if targets[p].consumers] or sorted(targets)
    if not chosen or not own.length:
        return []
    share = min(request_max, -(-own.length // len(chosen)))
    return _bounded(chosen, share, own.length)


def _bounded(peers: Sequence[int], share: int, length: int) -> list[Request]:
    found: list[Request] = []
    for peer in peers:
        count = min(share, length)
        if count:
            found.append(Request(peer, count))
            length -= count
    return found
