"""A switchover that an operator says at a machine that follows: the one that leads gets it over the
link of the copies."""

import getpass
import time
from contextlib import suppress
from typing import Final

from hms.boot.entries import Config, Node
from hms.boot.primary_questions import refuse_unknown_key
from hms.boot.replicating import endpoint_of, group_of
from hms.errors.catalogue import (
    ArbiterUnavailable,
    ReplicasNotBegun,
    RequestTimeout,
    SwitchoverRefused,
)
from hms.server.arbiter import Arbiter, Leader
from hms.server.replicas.frames import Order, OrderDone, before, decode
from hms.server.replicas.link import FollowerSocket
from hms.wire.operations import SwitchOver
from hms.wire.structures import decode_error

__all__ = ["leading_epoch", "switch_over"]

LOOK_S: Final = 0.2
LOOK_AGAIN_S: Final = 1.0


def switch_over(
    arbiter: Arbiter, config: Config, node: Node, asked: SwitchOver, timeout_s: float
) -> tuple[str, int]:
    """Have the primary move; who is to lead, and in which epoch the other one led. Its refusal;
    SwitchoverRefused where nobody leads; RequestTimeout."""
    try:
        standing = arbiter.read()
    except ArbiterUnavailable as fault:
        detail = f"nobody can be granted an epoch: {fault}"
        raise SwitchoverRefused(
            node=node.name, to=asked.to or "another replica", detail=detail
        ) from fault
    if standing is None:
        raise ReplicasNotBegun(endpoint=endpoint_of(config), node=node.name)
    group, leader = group_of(config, node), standing.leader
    if leader is None or leader.replica not in group.peers:
        whom = "nobody leads" if leader is None else f"hms.conf has no [replica.{leader.replica}]"
        detail = f"{whom}; `hms replica status` says who counts"
        raise SwitchoverRefused(node=node.name, to=asked.to or "another replica", detail=detail)
    if leader.replica == group.me:  # it does not lead yet: it would have been asked itself
        detail = f"{group.me} has the lease, and does not lead yet: say it again in a moment"
        raise SwitchoverRefused(node=node.name, to=asked.to or "another replica", detail=detail)
    order = Order(asked.to, asked.is_forced, asked.drain_s, getpass.getuser(), asked.apply_s)
    said = before(order) if asked.apply_s is None else order
    link, until = FollowerSocket(group, leader.replica), time.monotonic() + timeout_s
    look_at = time.monotonic() + LOOK_AGAIN_S
    try:
        link.say(standing.configuration.log, group.me, 0, said)
        while time.monotonic() < until:
            link.wait(LOOK_S)
            link.is_lost()  # else its event would end each wait at once
            refuse_unknown_key(link, group)
            for parts in link.received():
                envelope, data = decode(parts)
                if isinstance(envelope.said, OrderDone):
                    return _done(envelope.said, bytes(data))
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + LOOK_AGAIN_S
                if (later := _later(arbiter, leader)) is not None:
                    return asked.to or later.replica, leader.epoch
    finally:
        link.close()
    raise RequestTimeout(what=f"{leader.replica} to move {node.name}", timeout_s=timeout_s)


def leading_epoch(arbiter: Arbiter) -> int | None:
    """Of the one that leads now; None where nobody does, or the arbiter does not answer."""
    with suppress(ArbiterUnavailable):
        standing = arbiter.read()
        if standing is not None and standing.leader is not None:
            return standing.leader.epoch
    return None


def _later(arbiter: Arbiter, before: Leader) -> Leader | None:
    """Who leads by now, where it is another term: that one will not answer any more."""
    with suppress(ArbiterUnavailable):
        standing = arbiter.read()
        if standing is not None and standing.leader is not None:
            return standing.leader if standing.leader.epoch > before.epoch else None
    return None


def _done(said: OrderDone, error: bytes) -> tuple[str, int]:
    if error:
        raise decode_error(error)
    return said.to, said.epoch
