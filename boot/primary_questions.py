"""Questions to the replica that leads, from a command at a machine that follows: over the copies'
link, with the machine's own key, so they take no login and no address for clients."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from hms.boot.entries import Config, Node
from hms.boot.replicating import await_leader, endpoint_of, group_of
from hms.errors.catalogue import LinkKeyError, NotSupported, ReplicasNotBegun, RequestTimeout
from hms.server.arbiter import Arbiter
from hms.server.replicas.frames import Said, decode
from hms.server.replicas.link import FollowerSocket, Group

__all__ = ["PrimaryQuestions", "refuse_unknown_key"]

AGAIN_S: Final = 1.0
"""One that has just begun to lead does not answer at once."""
S = TypeVar("S", bound=Said)


def refuse_unknown_key(link: FollowerSocket, group: Group) -> None:
    """LinkKeyError where the machine that leads does not know this one's key, or this one that of
    the other."""
    them, me = link.primary, group.me
    if link.refuses_key():
        detail = f"{them} refuses that of {me}: public_key of [replica.{me}] is another one there"
        raise LinkKeyError(detail=detail)
    if link.shows_other_key():
        detail = f"{them} hangs up: public_key of [replica.{them}] here is not the one it shows"
        raise LinkKeyError(detail=detail)


class PrimaryQuestions:
    """One at a time; close() at the end. NotSupported at the machine that leads, ReplicasNotBegun,
    RequestTimeout where nobody leads."""

    def __init__(self, arbiter: Arbiter, config: Config, node: Node, timeout_s: float) -> None:
        if arbiter.read() is None:
            raise ReplicasNotBegun(endpoint=endpoint_of(config), node=node.name)
        now = await_leader(arbiter, -1, timeout_s)
        if now is None:
            raise RequestTimeout(what=f"who leads {node.name}", timeout_s=timeout_s)
        self.now, self._timeout_s = now, timeout_s
        self._group = group_of(config, node)
        if now.primary == self._group.me:
            raise NotSupported(
                feature=f"asking another copy at {now.primary}, which leads,",
                instead="Say it at the machine of a replica that follows.",
            )
        if now.primary not in self._group.peers:
            raise NotSupported(
                feature=f"asking {now.primary}, which leads and is not in hms.conf here,",
                instead=f"Add [replica.{now.primary}].",
            )
        self._link = FollowerSocket(self._group, now.primary)

    def ask(
        self, said: Said, answer: type[S], fits: Callable[[S], bool] = lambda _found: True
    ) -> S:
        """Its answer; fits: whether it is one to this question, as one that was asked twice is
        answered twice. RequestTimeout, also from a release before, which does not know the
        question."""
        until = time.monotonic() + self._timeout_s
        again = 0.0
        while (now_s := time.monotonic()) < until:
            if now_s >= again:
                again = now_s + AGAIN_S
                self._link.say(self.now.log, self._group.me, 0, said)
            self._link.wait(min(AGAIN_S, until - now_s))
            self._link.is_lost()  # else its event would end each wait at once
            refuse_unknown_key(self._link, self._group)
            for parts in self._link.received():
                found = decode(parts)[0].said
                if isinstance(found, answer) and fits(found):
                    return found
        what = f"{type(said).__name__} by {self.now.primary}"
        raise RequestTimeout(what=what, timeout_s=self._timeout_s)

    def close(self) -> None:
        """Hang up."""
        self._link.close()
