"""An arbiter in memory, for the simulator: with a clock of its own, and faults that a test sets."""

from collections.abc import Callable

from hms.errors.catalogue import ArbiterUnavailable
from hms.server.arbiter.interface import (
    Configuration,
    Leader,
    Seen,
    Standing,
    decode_configuration,
    encode,
    ended_in,
    has_ended,
    led_by,
    may_campaign,
    next_epoch,
)

__all__ = ["MemoryArbiter", "MemoryEngine"]


class MemoryEngine:
    """The engine that several MemoryArbiters ask. now_s: its clock. unreachable: of replicas whose
    calls do not arrive; mute: of those whose calls are done, and the answers lost."""

    def __init__(self, now_s: Callable[[], float], lease_s: float) -> None:
        self.now_s, self.lease_s = now_s, lease_s
        self.value: bytes | None = None
        self.leader: Leader | None = None
        self.leader_until_s = self.preferred_until_s = 0.0
        self.preferred = ""
        self.unreachable: set[str] = set()
        self.mute: set[str] = set()
        self.watchers: list[Callable[[], None]] = []

    def standing_leader(self) -> Leader | None:
        """Whose lease lives."""
        return self.leader if self.now_s() < self.leader_until_s else None

    def standing_preferred(self) -> str:
        """Who is preferred, as long as that holds."""
        return self.preferred if self.now_s() < self.preferred_until_s else ""

    def changed(self) -> None:
        """Tell those who watch."""
        for one in list(self.watchers):
            one()


class MemoryArbiter:
    """See hms.server.arbiter.Arbiter; me: the replica that asks."""

    def __init__(self, engine: MemoryEngine, me: str) -> None:
        self._engine, self._me = engine, me
        self._seen = Seen()
        self._granted: Leader | None = None

    def read(self) -> Standing | None:
        """See Arbiter."""
        engine = self._reach()
        if engine.value is None:
            found = None
        else:
            now = self._seen.decode(engine.value, "memory")
            found = Standing(now, engine.standing_leader(), engine.standing_preferred())
        self._answer()
        return found

    def begin(self, first: Configuration) -> bool:
        """See Arbiter."""
        engine = self._reach()
        is_first = engine.value is None
        if is_first:
            engine.value = encode(first)
            engine.changed()
        self._answer()
        return is_first

    def change(self, expected_version: int, new: Configuration) -> bool:
        """See Arbiter."""
        engine = self._reach()
        now = self._now(engine)
        is_done = now.version == expected_version and led_by(now, new, self._granted)
        if is_done:
            engine.value = encode(new)
            engine.changed()
        self._answer()
        return is_done

    def force(self, expected_version: int, new: Configuration) -> bool:
        """See Arbiter."""
        engine = self._reach()
        leader = engine.standing_leader()
        is_free = leader is None or leader.replica == new.members[0].name
        is_done = is_free and self._now(engine).version == expected_version
        if is_done:
            engine.value = encode(new)
            engine.changed()
        self._answer()
        return is_done

    def campaign(self, expected_version: int, replica: str, start: int) -> Configuration | None:
        """See Arbiter."""
        engine = self._reach()
        now, won = self._now(engine), None
        is_free = engine.standing_leader() is None
        is_free = is_free and may_campaign(engine.standing_preferred(), replica)
        if is_free and now.version == expected_version:
            won = next_epoch(now, replica, start)
            engine.value = encode(won)
            engine.leader = Leader(replica, won.epoch)
            engine.leader_until_s = engine.now_s() + engine.lease_s
            if ended_in(engine.preferred) is None:
                engine.preferred = ""
            engine.changed()
        self._answer()
        if won is not None:
            self._granted = Leader(replica, won.epoch)
        return won

    def renew(self) -> bool:
        """See Arbiter."""
        engine, granted = self._reach(), self._granted
        is_mine = granted is not None and self._now(engine).epoch == granted.epoch
        is_mine = is_mine and engine.standing_leader() in (None, granted)
        if is_mine:
            engine.leader = granted
            engine.leader_until_s = engine.now_s() + engine.lease_s
        self._answer()
        return is_mine

    def resign(self, to: str = "") -> None:
        """See Arbiter."""
        engine, granted = self._reach(), self._granted
        self._granted = None
        if granted is not None and engine.leader == granted:
            engine.leader = None
            engine.preferred = to
            engine.preferred_until_s = engine.now_s() + engine.lease_s
            engine.changed()
        self._answer()

    def ended(self, granted: Leader) -> bool:
        """See Arbiter."""
        engine = self._reach()
        is_so = engine.standing_leader() == granted
        if is_so:
            engine.leader = None
            engine.preferred = has_ended(granted.epoch)
            engine.preferred_until_s = engine.now_s() + engine.lease_s
            engine.changed()
        self._answer()
        return is_so

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """See Arbiter."""
        self._engine.watchers.append(callback)
        return lambda: self._engine.watchers.remove(callback)

    def close(self) -> None:
        """See Arbiter."""

    def _now(self, engine: MemoryEngine) -> Configuration:
        if engine.value is None:
            return Configuration(0, "")
        return decode_configuration(engine.value, "memory")

    def _reach(self) -> MemoryEngine:
        if self._me in self._engine.unreachable:
            raise ArbiterUnavailable(endpoint="memory", detail="it is not reached")
        return self._engine

    def _answer(self) -> None:
        if self._me in self._engine.mute:
            raise ArbiterUnavailable(endpoint="memory", detail="its answer was lost")
