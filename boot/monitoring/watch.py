"""Watch: looks each second at the node, and at some of its destinations, for what becomes an alert.

Of the destinations 500 are looked at in a second, under the engine's lock for about 2 ms.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from hms.boot.descriptors import open_share
from hms.boot.monitoring.latencies import Latencies
from hms.boot.monitoring.watch_node import NodeWatch
from hms.boot.monitoring.watch_parts import Parts, PartsWatch
from hms.boot.sections import Alerts as Limits
from hms.engine.admin.destination_figures import oldest_ms
from hms.engine.engine import Engine
from hms.engine.queue.destinations import SCHEDULED, Queue, Retained, Subscription
from hms.engine.session.session_objects import Consumer
from hms.server import accept_guard
from hms.server.alerts import Alerts
from hms.server.broker import Broker
from hms.server.histograms import SECONDS
from hms.store.aging import HELD_S
from hms.store.interface import Store

__all__ = ["Watch"]

LOOKED_AT_ONCE = 500
HOLDERS_MAX = 50
MINUTE_S = 60
DELIVERIES_MIN = 50
"""Fewer deliveries in a minute are no storm."""
RATED = ("dead_lettered", "delivered", "redelivered")
Place = Queue | Subscription


class Watch:
    """look() in one thread."""

    def __init__(
        self,
        broker: Broker,
        store: Store,
        alerts: Alerts,
        limits: Limits,
        free_bytes: Callable[[], tuple[int, int]],
        clock_ms: Callable[[], int],
        machine_ms: Callable[[], int | None],
        parts: Parts,
        clocks: Callable[[], Iterable[Mapping[str, Any]]] = tuple,
    ) -> None:
        """free_bytes: what is left of the store's disk, and of how much; clock_ms: for people;
        machine_ms: of the machine's own clock, None when that cannot be used; clocks: of the
        replicas' machines."""
        self._broker, self._store = broker, store
        self._alerts, self._limits = alerts, limits
        self._free_bytes = free_bytes
        self._node = NodeWatch(
            alerts,
            limits,
            lambda: broker.backed_up_ms,
            lambda: broker.shipped_ms,
            lambda: broker.around.resources,
            clock_ms,
            machine_ms,
            clocks=clocks,
        )
        self._parts = PartsWatch(alerts, limits, parts, clock_ms)
        self._rest: Iterator[Place] = iter(())
        self._names: set[str] = set()
        self._acknowledged: dict[str, int] = {}
        self._held: dict[str, dict[tuple[int, int], int]] = {}
        """By destination, of each consumer the first message that it has in flight."""
        self._minute: deque[tuple[int, ...]] = deque(maxlen=MINUTE_S)
        self._syncs: deque[list[int]] = deque(maxlen=MINUTE_S)
        self._put_off = 0
        self.latencies = Latencies()

    def look(self) -> None:
        """One look."""
        self._broker.look(self._look_at_places)
        self._broker.look(self._look_at_node)
        self._look_at_machine()
        self._node.look()
        self._parts.look()

    def _look_at_machine(self) -> None:
        limits, put = self._limits, self._alerts.put
        refused = self._store.sends_refused()
        put("store_full", refused, refused or "")
        free, total = self._free_bytes()
        percent = 100 * free / total if total else 100.0
        put("store_low", percent < limits.store_low_percent, f"{percent:.1f} % of the disk is left")
        held_s = float(str(self._store.describe().get("history_held_s", 0)))
        detail = f"{held_s / HELD_S:.1f} days of history or audit stay though their time is over"
        put("history_held", held_s > HELD_S, f"{detail}; was the clock set ahead?")
        share, before = 100 * open_share(), self._put_off
        self._put_off = accept_guard.put_off()
        must_wait = self._put_off > before
        is_high = share > limits.descriptors_high_percent or must_wait
        detail = f"{share:.0f} % of the descriptors are open"
        if must_wait:
            detail += "; connections wait, as what is left is kept for the log"
        put("descriptors_high", is_high, detail)
        p99_ms = self._sync_p99_ms()
        put("slow_sync", p99_ms > limits.slow_sync_ms, f"one of 100 syncs takes {p99_ms:g} ms")

    def _sync_p99_ms(self) -> float:
        """Of the syncs of the last minute the bucket that 99 % of them do not go beyond."""
        now = self._broker.commit_counts()
        before = self._syncs[0] if self._syncs else [0] * len(now)
        self._syncs.append(now)
        counts = [a - b for a, b in zip(now, before, strict=True)]
        left = 0.99 * sum(counts)
        for bound, count in zip((*SECONDS, 2 * SECONDS[-1]), counts, strict=True):
            left -= count
            if count and left <= 0:
                return bound * 1000
        return 0.0

    def _look_at_node(self, engine: Engine) -> None:
        limits, put, state = self._limits, self._alerts.put, engine.state
        used, most = state.held_bytes, state.settings.memory_bytes_max
        percent = 100 * used / most
        is_high = percent > limits.memory_high_percent
        put("memory_high", is_high, f"{used >> 20} of {most >> 20} MiB are taken")
        blocked = sum(map(len, state.blocked.lines.values()))
        put("producers_blocked", blocked, f"{blocked} sends wait", limits.producers_blocked_s)
        in_doubt = len(state.branches.in_doubt())
        put("in_doubt", in_doubt, f"{in_doubt} branches are in doubt", limits.in_doubt_s)
        self._node.look_at_engine(engine)
        self._look_at_rates(engine)

    def _look_at_rates(self, engine: Engine) -> None:
        limits, put = self._limits, self._alerts.put
        both = engine.state.space.totals.values()
        sums = (sum(getattr(totals, what) for totals in both) for what in RATED)
        now = *sums, *self._broker.refusals()
        before = self._minute[0] if self._minute else now
        self._minute.append(now)
        letters, delivered, again, logins, denials = (
            max(0, a - b) for a, b in zip(now, before, strict=True)
        )
        growing = letters > limits.dead_letters_per_minute
        put("dead_letters_growing", growing, f"{letters} dead letters in a minute")
        share = 100 * again / delivered if delivered >= DELIVERIES_MIN else 0
        is_storm = share > limits.redelivered_percent
        put("redelivery_storm", is_storm, f"{share:.0f} % of the deliveries come again")
        many = logins > limits.login_failures_per_minute
        put("login_failures", many, f"{logins} logins were refused in a minute")
        many = denials > limits.denials_per_minute
        put("denials", many, f"{denials} commands were not permitted in a minute")

    def _look_at_places(self, engine: Engine) -> None:
        some = list(islice(self._rest, LOOKED_AT_ONCE))
        for place in some:
            if place.kind != SCHEDULED and not isinstance(place, Retained):
                self._look_at(place, engine.state.now_ms)
        if len(some) < LOOKED_AT_ONCE:
            self._end_pass(engine)

    def _end_pass(self, engine: Engine) -> None:
        """All were looked at; those that are gone have no alerts any more."""
        self._alerts.keep(self._names)
        for known in (self._acknowledged, self._held):
            for name in [name for name in known if name not in self._names]:
                del known[name]
        self._names = set()
        self._rest = iter(engine.state.every_place())

    def _look_at(self, place: Place, now_ms: int) -> None:
        limits, line = self._limits, place.line
        self.latencies.look(place, now_ms)
        name = f"{place.kind}:{place.name}"
        self._names.add(name)
        done = line.counters.acknowledged
        comes_on = self._acknowledged.get(name) != done
        self._acknowledged[name] = done
        waits = line.waiting_count
        stands = bool(waits and place.consumers) and not comes_on
        text = f"{waits} messages wait, and none is acknowledged"
        self._put("stuck_queue", name, text, stands, limits.stuck_queue_s)
        self._look_at_age(place, name, now_ms)
        self._look_at_holders(place, name)

    def _look_at_age(self, place: Place, name: str, now_ms: int) -> None:
        limits = self._limits
        if isinstance(place, Queue):
            alert, most_s = "unconsumed_queue", limits.unconsumed_queue_s
        else:
            alert, most_s = "abandoned_subscription", limits.abandoned_subscription_s
        is_alone = not place.consumers and place.line.waiting_count
        oldest = oldest_ms(place) if is_alone else 0
        age_s = (now_ms - oldest) // 1000 if oldest else 0
        text = f"the oldest message has waited for {age_s} s, and nobody receives"
        self._put(alert, name, text, bool(oldest) and age_s >= most_s, 0)

    def _look_at_holders(self, place: Place, name: str) -> None:
        """A consumer whose first message in flight stays the same."""
        if not place.line.out_count:
            self._held.pop(name, None)
            self._alerts.clear("stalled_consumer", name)
            return
        before, now = self._held.get(name, {}), {}
        texts = []
        for one in place.holders[:HOLDERS_MAX]:
            if isinstance(one, Consumer) and one.out:
                key = one.session.connection.number, one.handle
                first = next(iter(one.out.values())).id
                now[key] = first
                if before.get(key) == first:
                    texts.append(f"client {key[0]} has held {first:012x} and has not settled it")
        self._held[name] = now
        text = texts[0] if texts else ""
        self._put("stalled_consumer", name, text, bool(texts), self._limits.stalled_consumer_s)

    def _put(self, alert: str, name: str, text: str, is_so: bool, after_s: float) -> None:
        if is_so:
            self._alerts.set(alert, name, text, after_s)
        else:
            self._alerts.clear(alert, name)
