"""Distributed transactions of the simulation: branches, and who completes them when their client
cannot. The transaction manager's log is the books: what was decided there happens, sooner or later.
"""

from typing import TYPE_CHECKING

from hms.client.xa_resource_steps import HmsSteps
from hms.wire.xa_constants import (
    TMFAIL,
    TMJOIN,
    TMONEPHASE,
    TMRESUME,
    TMSTARTRSCAN,
    TMSUCCESS,
    TMSUSPEND,
    XA_OK,
    XA_RDONLY,
)
from hms.wire.xid import Xid
from tests.sim.apps import open_queue, pause
from tests.sim.client import Client
from tests.sim.entries import FAIL, OK
from tests.sim.unit import Steps, Unit

if TYPE_CHECKING:
    from tests.sim.world import World

FORMAT_ID = 5


def mover(client: Client, source: str, *targets: str) -> Steps:
    """Takes from one place and sends to others in branches; at times outside of one too."""
    unit, world, rng = Unit(client, is_xa=True), client.world, client.world.rng
    yield from unit.open()
    branches = Branches(unit)
    yield from open_queue(unit, source)
    for target in targets:
        yield from unit.producer(target)
    while not world.is_ending:
        if rng.random() < 0.1:
            yield from _work(unit)
        if (yield from branches.begin()):
            yield from _work(unit)
            if rng.random() < 0.2 and (yield from branches.again()):
                yield from _work(unit)
            yield pause(client)
            yield from branches.complete()
        (inbound,) = unit.inbounds
        if rng.random() < 0.05 or inbound.prefetched.error is not None:
            yield from inbound.close()
            yield from open_queue(unit, source)
        yield pause(client)
    yield from unit.close()


def _work(unit: Unit) -> Steps:
    (inbound,) = unit.inbounds
    for _ in range(unit.rng.randint(0, 3)):
        if inbound.has_news and inbound.prefetched.error is None:
            yield from inbound.take()
    for _ in range(unit.rng.randint(0, 2)):
        yield from unit.rng.choice(unit.outbounds).send()
    yield from unit.wait_for_sends()


class Branches:
    """The branches of one session, one after the other."""

    def __init__(self, unit: Unit) -> None:
        self._unit, self._rng, self._books = unit, unit.rng, unit.books
        self._resource = HmsSteps(unit.shell, unit.session)
        self._count = 0
        self._xid = Xid(FORMAT_ID, b"-", b"")

    def begin(self) -> Steps:
        """A new one; whether it has begun."""
        self._count += 1
        name = f"{self._unit.client.name}.{self._unit.state.number}.{self._count}"
        self._xid = Xid(FORMAT_ID, name.encode(), b"hms")
        code = yield from self._drive(self._resource.starting(self._xid, 0))
        self._books.counts["branches"] += code == XA_OK
        return code == XA_OK

    def again(self) -> Steps:
        """Leave it for a moment; whether it is still there, and worked in again."""
        flags, back = self._rng.choice(((TMSUCCESS, TMJOIN), (TMSUSPEND, TMRESUME)))
        if (yield from self._drive(self._resource.ending(self._xid, flags))) != XA_OK:
            return False
        yield pause(self._unit.client)
        return (yield from self._drive(self._resource.starting(self._xid, back))) == XA_OK

    def complete(self) -> Steps:
        """End the work, vote, decide, and carry it out."""
        unit, rng = self._unit, self._rng
        is_bad = unit.has_poison or rng.random() < 0.1
        flags = TMFAIL if is_bad and rng.random() < 0.3 else TMSUCCESS
        if is_bad:
            unit.fail()
        code = yield from self._drive(self._resource.ending(self._xid, flags))
        if code != XA_OK or is_bad:
            yield from self._roll_back(is_failed=is_bad)
        elif rng.random() < 0.3:
            yield from self._commit_at_once()
        else:
            yield from self._commit_in_two()

    def _commit_at_once(self) -> Steps:
        transaction, xid = self._unit.current, self._xid
        if transaction is not None:
            self._books.committing(transaction, xid.pack())
        self._unit.fail()  # it may be rolled back instead
        code = yield from self._drive(self._resource.committing(xid, TMONEPHASE))
        self._unit.end(OK if code == XA_OK else FAIL)

    def _commit_in_two(self) -> Steps:
        xid, unit = self._xid, self._unit
        unit.fail()
        code = yield from self._drive(self._resource.preparing(xid))
        if code == XA_RDONLY:
            assert unit.current is None or not unit.current.has_work, "work voted read-only"
            unit.end(FAIL)
            return
        if code != XA_OK or self._rng.random() < 0.2:
            yield from self._roll_back(is_failed=True)
            return
        yield pause(unit.client)
        self._decide(xid)
        code = yield from self._drive(self._resource.committing(xid, 0))
        self._books.counts[f"branches committed {code}"] += 1

    def _decide(self, xid: Xid) -> None:
        """From here on it is committed, whoever lives."""
        self._books.decided.add(xid.pack())
        if self._unit.current is not None:
            self._books.committing(self._unit.current, xid.pack())
        self._unit.end(OK)

    def _roll_back(self, *, is_failed: bool) -> Steps:
        if not is_failed:
            self._unit.fail()
        yield from self._drive(self._resource.rolling_back(self._xid))
        self._unit.end(FAIL)

    def _drive(self, steps: Steps) -> Steps:
        result = yield from self._unit.shell.drive(steps)
        self._unit.look()
        return result


def finish_in_doubt(unit: Unit, *, only_left: bool) -> Steps:
    """Complete what is in doubt as the books say; only_left: what nobody else will complete."""
    world, resource = unit.world, HmsSteps(unit.shell)
    found = yield from unit.shell.drive(resource.recovering(1000, TMSTARTRSCAN))
    names = {client.name for client in world.clients}
    for xid in found:
        owner = xid.gtrid.decode().split(".")[0]
        if xid.format_id != FORMAT_ID or (only_left and owner in names):
            continue
        if xid.pack() in world.books.decided:
            yield from unit.shell.drive(resource.committing(xid, 0))
        else:
            yield from unit.shell.drive(resource.rolling_back(xid))
        world.books.counts["branches recovered"] += 1


def recoverer(client: Client) -> Steps:
    """Looks for branches whose client has gone."""
    unit, world = Unit(client), client.world
    yield from unit.open()
    while not world.is_ending:
        yield from finish_in_doubt(unit, only_left=True)
        yield pause(client, 0.02)
    yield from unit.close()


def in_doubt(world: "World") -> int:
    """How many branches the node still knows."""
    return len(world.node.engine.state.branches.by_xid) if world.node is not None else 0


__all__ = ["finish_in_doubt", "in_doubt", "mover", "recoverer"]
