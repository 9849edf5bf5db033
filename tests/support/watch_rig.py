"""A watch over an engine that a test works with, whose seconds pass when the test says so."""

from hms.boot.monitoring.watch import Watch
from hms.boot.monitoring.watch_parts import Parts
from hms.boot.sections import Alerts as Limits
from hms.server.alerts import Alerts
from hms.server.broker import Broker, Identity, Surroundings
from hms.wire import structures as wire
from tests.support.branch_rig import BranchRig
from tests.support.memory import MemoryStore, Outlet
from tpmon.scheduling.monitor import Monitor

__all__ = ["Watched", "WatchedRig"]


class Watched:
    """limits: keys of [alerts]. rig: what has now_ms, the node's time."""

    def __init__(self, rig, broker, store, **limits):
        self._rig = rig
        self.disk = 50, 100
        self.alerts = Alerts(lambda: rig.now_ms, lambda: rig.now_ms / 1000)
        parts = Parts(
            slowest_turn_s=float,
            growth=lambda: None,
            servers=tuple,
            listeners_missing=tuple,
            audit_broken=str,
        )
        self._watch = Watch(
            *(broker, store, self.alerts, Limits(**limits)),
            lambda: self.disk,
            lambda: rig.now_ms,
            lambda: None,
            parts,
        )
        self.latencies = self._watch.latencies

    def look(self, seconds=2):
        """What is wrong so many seconds later, by name; places are looked at from the second one
        on, as the first finds out which there are."""
        for _ in range(seconds):
            self._rig.now_ms += 1000
            self._rig.pass_time()
            self._watch.look()
        return {one["alert"]: one["text"] for one in self.alerts.active()}


class WatchedRig(BranchRig):
    """An engine as BranchRig has it, with a broker around it that is watched."""

    def __init__(self, subscriptions=(), *, alerts=None, **limits):
        super().__init__(subscriptions, **limits)
        self.store = MemoryStore()
        about = Identity("memory", 1, wire.Limits(10_000, 1 << 20, 64, 8192, 10.0), "test")
        self.broker = Broker(self.engine, self.store, Monitor(), about, lambda: self.now_ms)
        self.broker.begin(Surroundings(self, Outlet()))
        self.watched = Watched(self, self.broker, self.store, **(alerts or {}))
        self.look = self.watched.look

    def pass_time(self):
        """A tick of the engine."""
        self.run(lambda fx: self.engine.tick(self.now_ms, fx))

    def notify(self):
        """A storage worker would wake up."""

    notify_later = notify
