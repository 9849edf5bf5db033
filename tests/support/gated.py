"""A secured broker in memory: its logins are checked at once, in the thread of the test."""

from hms.server.logins.auditing import Auditing
from hms.server.logins.authorization import Authorization
from hms.server.logins.callers import Caller
from hms.server.logins.identities import Identities
from hms.server.logins.live_changes import LiveChanges
from hms.server.logins.login_gate import LISTENERS_OFFER, LoginGate
from hms.server.logins.outside_logins import OutsideLogins
from hms.server.logins.policy_keeper import NO_KEEPER
from hms.server.logins.resume_tokens import ResumeTokens
from hms.wire import structures as wire
from hms.wire.frames import Kind
from tests.support.hello import hello_of
from tests.support.memory import SETTINGS, MemoryNode
from tests.support.secured import PASSWORD, cheap_hash

__all__ = ["GatedNode", "Workers"]

LOCAL = Caller("ipc:///s", "", 1000, 1000)


class Workers:
    """Login workers that run when the test says so; refusals are sent at once."""

    def __init__(self):
        self.jobs, self.room, self.is_held = [], 100, False
        self.known = []

    def submit(self, job, *, is_known=False):
        if len(self.jobs) >= self.room:
            return False
        self.jobs.append(job)
        self.known.append(is_known)
        return True

    def submit_spare(self, job):
        return not self.jobs and self.submit(job)

    def at_next_multiple(self, call):
        self.jobs.append(call)

    def run(self):
        while self.jobs:
            self.jobs.pop(0)()


class GatedNode(MemoryNode):
    """callers: what the transport proves of a peer, LOCAL for all others."""

    def __init__(
        self,
        document,
        settings=SETTINGS,
        node="memory",
        os_users=None,
        authenticators=None,
        store=None,
        keeper=NO_KEEPER,
        offered=lambda _listener: LISTENERS_OFFER,
    ):
        self.keeper, self.offered = keeper, offered
        self.authenticators = authenticators or {}
        self.workers, self.callers, self.os_users = Workers(), {}, os_users or {}
        self.document, self.node_name, self.dropped = document, node, []
        super().__init__(settings, store, entrance=self._entrance)
        self.engine.obey(self.gate)

    def identities(self, document):
        return Identities(document, lambda uid: self.os_users.get(uid, ""), lambda _u, _g: ())

    def _entrance(self, engine, registry, change):
        authorization = Authorization(
            engine,
            registry.logins,
            self.node_name,
            self._calls_of,
        )
        self.auditing = Auditing(engine.state.audit)
        self.registry, self.authorization = registry, authorization
        self.outside = OutsideLogins(self.authenticators)
        self.outside.workers = self.workers
        self.gate = LoginGate(
            registry,
            change,
            self.identities(self.document),
            authorization,
            self.workers,
            ResumeTokens([b"k" * 32], 3600),
            lambda peer: self.callers.get(peer, LOCAL),
            cheap_hash("nobody knows it"),
            self.auditing,
            lambda *told: self._changes().renew(*told),
            outside=self.outside,
            keeper=self.keeper,
            offered=self.offered,
            drop=self.dropped.append,
        )
        return self.gate

    def _calls_of(self, number):
        return self.broker.monitor.calls_of(number)

    def send(self, peer, kind, payload, correlation=1, count=1):
        got = super().send(peer, kind, payload, correlation, count)
        if not self.workers.is_held:
            self.workers.run()
        self.step()
        return got + self.outlet.take(peer)

    def hello(self, peer, number=1, **options):
        """The frames that answer a HELLO."""
        options = {"protocol": 2, "mechanisms": ("PASSWORD",)} | options
        return self.send(peer, Kind.HELLO, wire.encode(hello_of(number, **options)))

    def auth(self, peer, user, password=PASSWORD, mechanism="PASSWORD", **more):
        """The frames that answer an AUTH."""
        auth = wire.Auth(mechanism, user, password.encode(), **more)
        return self.send(peer, Kind.AUTH, wire.encode(auth))

    def login(self, peer, name, number=1, **options):
        """Its WELCOME."""
        ((asked, _),) = self.hello(peer, number, **options)
        assert asked.kind is Kind.CHALLENGE
        ((envelope, data),) = self.auth(peer, name)
        assert envelope.kind is Kind.WELCOME, wire.decode_error(data)
        return wire.decode(data, wire.Welcome)

    def ask(self, peer, request):
        """The reply, or the error."""
        return self.answer(self.send(peer, Kind.REQUEST, wire.encode(request)))

    @staticmethod
    def answer(frames):
        ((envelope, data),) = [f for f in frames if f[0].kind in (Kind.REPLY, Kind.ERROR)]
        if envelope.kind is Kind.REPLY:
            return wire.decode_reply(data)
        return wire.decode_error(data)

    def _changes(self):
        return LiveChanges(self.engine, self.registry, self.authorization, self.broker.monitor)

    def change(self, document):
        """A new version of the document holds."""
        self.document, identities = document, self.identities(document)
        changes = self._changes()

        def apply(fx, now_ms):
            self.gate.obey(identities)
            self.closed = changes.apply(identities, now_ms, fx)

        self.broker.command(apply)
        self.step()
