"""A forced take-over: one copy goes on without enough others, because an operator says so."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from hms.boot.entries import Config, Node
from hms.boot.monitoring.standby_figures import told_by_copy
from hms.boot.replicating import await_found, await_leader, endpoint_of
from hms.errors.catalogue import ReplicasNotBegun, TakeOverRefused
from hms.server.arbiter import Arbiter, Configuration, Leader, Member
from hms.server.arbiter.interface import goes_on_alone
from hms.server.replicas.copy_state import CopyState, read_state
from hms.server.replicas.log_copy import LogCopy
from hms.server.replicas.promises import promises_needed
from hms.store.journal.disk import REAL_DISK

__all__ = ["Promotion"]

TRIES_LEASES: Final = 4
"""A take-over with enough copies begins within so many leases."""
LEASE_ENDS_S: Final = 1.0
"""So long after its time an arbiter may say that a lease stands."""


class Promotion:
    """Of this machine's copy. is_waiting: it runs, and does not lead; agrees: asked with what may
    be missing."""

    def __init__(
        self,
        arbiter: Arbiter,
        config: Config,
        node: Node,
        is_waiting: Callable[[], bool],
        agrees: Callable[[str], bool],
    ) -> None:
        self._arbiter, self._config, self._node = arbiter, config, node
        self._is_waiting, self._agrees = is_waiting, agrees
        self._me = node.replica or ""

    def run(self, timeout_s: float) -> Configuration:
        """The configuration when it leads. TakeOverRefused while somebody leads or is about to, or
        where it is not agreed to."""
        state = read_state(REAL_DISK, self._node.store, self._me)
        if state is None:
            raise self._refused(f"{self._node.store} has no copy of the log")
        if gap := LogCopy(REAL_DISK, self._node.store).gap():
            detail = f"its copy lacks segment {gap}, which the log needs: it was about to get all"
            raise self._refused(f"{detail}. Promote another one, or boot one that has it")
        now = self._when_nobody_leads()
        if not self._agrees(what := self._missing(now)):
            raise self._refused(f"{what}. What others confirmed behind that is lost with --lossy")
        forced = await_found(self._arbiter, lambda: self._force(state), timeout_s)
        if forced is None:
            raise self._refused("somebody leads by now")
        found = await_leader(self._arbiter, forced.epoch, timeout_s)
        if found is None:
            raise self._refused("it is the only copy that counts now, and does not lead yet")
        return found

    def _refused(self, detail: str) -> TakeOverRefused:
        return TakeOverRefused(replica=self._me, node=self._node.name, detail=detail)

    def _when_nobody_leads(self) -> Configuration:
        """A copy that can take over does so in a few leases."""
        assert self._config.arbiter is not None, "the configuration was checked"
        lease_s = self._config.arbiter.lease_s
        # the lease of one that has just died ends by itself
        await_found(self._arbiter, lambda: self._leader() is None or None, lease_s + LEASE_ENDS_S)
        leader = await_found(self._arbiter, self._leader, TRIES_LEASES * lease_s)
        if leader is not None:
            raise self._refused(f"{leader.replica} leads in epoch {leader.epoch}")
        standing = self._arbiter.read()
        if standing is None:
            raise ReplicasNotBegun(endpoint=endpoint_of(self._config), node=self._node.name)
        return standing.configuration

    def _leader(self) -> Leader | None:
        """This copy has a lease, too, while it asks for promises and does not get them."""
        leader = None if (standing := self._arbiter.read()) is None else standing.leader
        is_other = leader is not None and (leader.replica != self._me or not self._is_waiting())
        return leader if is_other else None

    def _missing(self, now: Configuration) -> str:
        """What this copy has, what a take-over needs, and what this does not stop."""
        copy = LogCopy(REAL_DISK, self._node.store)
        try:
            end, is_clean = copy.tail()
        finally:
            copy.close()
        names = ", ".join(one.name for one in now.members)
        where = f"epoch {end.epoch}, segment {end.number}, offset {end.offset}"
        damaged = "" if is_clean else ", and is damaged there"
        needed = f"a take-over needs {promises_needed(now)} of {names}"
        lag = _lag(told_by_copy(self._node))
        others = ", ".join(one.name for one in now.members if one.name != self._me)
        off = f". Be sure that {others} do not run: without the arbiter they may go on"
        what = f"{needed}; the copy of {self._me} ends in {where}{damaged}{lag}"
        return what + (off if others else "")

    def _force(self, state: CopyState) -> Configuration | None:
        """Each time somebody asks for an epoch the version is another one."""
        if (standing := self._arbiter.read()) is None:
            return None
        now = standing.configuration
        new = goes_on_alone(now, Member(self._me, state.copy_id, state.starts))
        return new if self._arbiter.force(now.version, new) else None


def _lag(copy: Mapping[str, Any]) -> str:
    """Up to when and where it has everything, as its process knows."""
    if (at_ms := copy.get("has_all_ms")) is None:
        return "; since it was booted it has not had everything"
    at = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(" ", "seconds")
    place = f"segment {copy['confirmed_segment']}, offset {copy['confirmed_offset']}"
    return f"; it has what was written until {at}, and knows it confirmed up to {place}"
