"""The monitor against everything that clients, servers and time may do, in any order."""

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hms.errors.catalogue import ServiceNotFound
from hms.wire.structures import CallHead, InvokeHead, ResultHead
from tpmon.scheduling.monitor import TPSUCCESS, Invoke, Kill, Monitor, Origin, Rules

SERVICES = st.sampled_from(["A", "B", "LIMITED"])
CLIENTS = st.sampled_from([100, 101])
SESSIONS = st.sampled_from([1, 2])
PICKS = st.integers(0, 1000)
RULES = {"LIMITED": Rules(limit_ms=3000), "B": Rules(priority=90, concurrency=2)}


class Asked:
    """A call as its caller knows it."""

    def __init__(self, number, client, session=0, consumer=0, is_wanted=True):
        self.number, self.client, self.session = number, client, session
        self.consumer, self.is_wanted = consumer, is_wanted
        self.answers = self.runs = 0


class MonitorMachine(RuleBasedStateMachine):
    """Plays clients, sessions and servers, and checks every effect when it comes."""

    def __init__(self):
        super().__init__()
        self.monitor = Monitor(rules=RULES)
        self.now_ms = 0
        self.connections = 1000
        self.offers = {}
        self.places = {}  # by server, one when it is not here
        self.running = {}  # (server, number of the call): the INVOKE that it has not answered
        self.asked = []
        self.by_number = {}
        self.clients = {100: 100, 101: 101}  # by role: the connection it has now

    # servers

    @rule(service=SERVICES, is_named=st.booleans(), places=st.sampled_from([1, 1, 2, 3]))
    def start_server(self, service, is_named, places):
        self.connections += 1
        self.offers[self.connections] = {service}
        self.places[self.connections] = places
        name = f"x:{self.connections}" if is_named else ""
        self.monitor.introduce(self.connections, name)
        self.monitor.advertise(self.connections, service, "", places)
        self.check()

    @precondition(lambda self: self.offers)
    @rule(pick=PICKS, service=SERVICES)
    def advertise(self, pick, service):
        server = self._server(pick)
        self.offers[server].add(service)
        self.monitor.advertise(server, service, "", self.places.get(server, 1))
        self.check()

    @precondition(lambda self: any(self.offers.values()))
    @rule(pick=PICKS)
    def unadvertise(self, pick):
        offered = [(s, name) for s, names in self.offers.items() for name in sorted(names)]
        server, service = offered[pick % len(offered)]
        self.offers[server].remove(service)
        self.monitor.unadvertise(server, service)
        self.check()

    @precondition(lambda self: self.running)
    @rule(pick=PICKS)
    def finish(self, pick):
        server, number = sorted(self.running)[pick % len(self.running)]
        invoke = self.running.pop((server, number))
        self.monitor.result(server, ResultHead(invoke.head.call, TPSUCCESS), invoke.data)
        self.check()

    @precondition(lambda self: self.running)
    @rule(pick=PICKS, off_by=st.sampled_from([-1, 1, 1000]))
    def finish_what_was_not_asked(self, pick, off_by):
        server, number = sorted(self.running)[pick % len(self.running)]
        if (server, number + off_by) in self.running:
            return
        self.monitor.result(server, ResultHead(number + off_by, TPSUCCESS), b"")
        assert self.monitor.effects == []

    @precondition(lambda self: self.offers)
    @rule(pick=PICKS)
    def lose_server(self, pick):
        server = self._server(pick)
        del self.offers[server]
        for key in [key for key in self.running if key[0] == server]:
            del self.running[key]
        self.monitor.lost(server)
        self.check()

    # clients

    @rule(client=CLIENTS, service=SERVICES, wanted=st.booleans(), ms=st.sampled_from([0, 0, 2000]))
    def call(self, client, service, wanted, ms):
        asked = self._asked(client, is_wanted=wanted)
        origin = Origin(asked.client, asked.number)
        try:
            head = CallHead(service, ms, is_reply_wanted=wanted)
            self.monitor.call(origin, head, self._data(asked), self.now_ms)
        except ServiceNotFound:
            assert not any(service in names for names in self.offers.values())
            self.asked.remove(asked)
        self.check()

    @rule(client=CLIENTS, session=SESSIONS, consumer=SESSIONS, service=SERVICES)
    def listen(self, client, session, consumer, service):
        asked = self._asked(client, session, consumer)
        origin = Origin(asked.client, 0, session, asked.number, consumer)
        self.monitor.listen(origin, InvokeHead(service, 0, 0), self._data(asked))
        self.check()

    @rule(client=CLIENTS, session=st.sampled_from([0, 1, 2]), consumer=st.sampled_from([0, 1, 2]))
    def withdraw(self, client, session, consumer):
        connection = self.clients[client]
        for asked in self.asked:
            is_meant = asked.session and session in (0, asked.session)
            if asked.client == connection and is_meant and consumer in (0, asked.consumer):
                asked.is_wanted = False
        self.monitor.withdraw(connection, session, consumer)
        self.check()

    @rule(client=CLIENTS)
    def lose_client(self, client):
        connection = self.clients[client]
        for asked in self.asked:
            asked.is_wanted = asked.is_wanted and asked.client != connection
        self.connections += 1
        self.clients[client] = self.connections
        self.monitor.lost(connection)
        self.check()

    @rule(ms=st.sampled_from([1, 999, 3000, 12_000]))
    def time_passes(self, ms):
        self.now_ms += ms
        self.monitor.tick(self.now_ms)
        self.check()

    # what must hold

    def check(self):
        self.monitor.release_orphans()
        self.monitor.changed.clear()
        effects = self.monitor.effects.copy()
        self.monitor.effects.clear()
        for effect in effects:
            if isinstance(effect, Invoke):
                self._check_invoke(effect)
            elif isinstance(effect, Kill):
                assert RULES["LIMITED"].limit_ms
            else:
                origin = effect.origin
                asked = self.by_number[origin.token if origin.session else origin.correlation]
                asked.answers += 1
                assert asked.is_wanted
                assert asked.answers == 1
                assert effect.head.call == 0

    def _check_invoke(self, invoke):
        server = invoke.connection
        assert invoke.head.service in self.offers[server]
        self.running[server, invoke.head.call] = invoke
        calls = sum(1 for one, _ in self.running if one == server)
        assert calls <= self.places.get(server, 1), "a server has more calls than places"
        running = [one for one in self.running.values() if one.head.service == "B"]
        assert len(running) <= RULES["B"].concurrency
        asked = self.by_number[int(invoke.data)]
        asked.runs += 1
        assert asked.runs == 1
        assert not asked.answers
        if asked.session:
            self._check_turn(asked)

    def _check_turn(self, asked):
        """Its session runs nothing else, and nothing older of it is still to be run."""
        line = [a for a in self.asked if (a.client, a.session) == (asked.client, asked.session)]
        for other in line[: line.index(asked)]:
            is_over = other.answers or not other.is_wanted
            assert is_over, "an older message of the session was overtaken"
            still = next((i for i in self.running.values() if int(i.data) == other.number), None)
            is_running = still is not None
            may_have_timed_out = other.answers or (still and still.head.service == "LIMITED")
            assert may_have_timed_out or not is_running, "two messages of one session at once"

    @invariant()
    def nobody_is_idle_while_calls_wait(self):
        for service in self.monitor._calls.services.values():
            may_run = service.running < service.running_max
            assert not (service.idle and service.waiting and may_run), service
            busy = [one for one in self.running.values() if one.head.service == service.name]
            assert service.running == len(busy)

    @invariant()
    def the_calls_of_each_client_that_have_not_ended_are_counted(self):
        calls = [c for s in self.monitor._calls.services.values() for c in s.waiting]
        calls += self.monitor._calls.running.values()
        open_ = Counter(c.origin.connection for c in calls if not c.origin.session)
        counted = {one: self.monitor.calls_of(one) for one in self.clients.values()}
        assert counted == {one: open_[one] for one in self.clients.values()}
        assert self.monitor._calls.asked.keys() <= {*self.clients.values()}

    @invariant()
    def the_bytes_that_wait_are_counted(self):
        waiting = [c for s in self.monitor._calls.services.values() for c in s.waiting]
        assert self.monitor.bytes_waiting == sum(len(call.data) for call in waiting)

    def teardown(self):
        """Every call ends once there is a server for each service."""
        self.connections += 1
        self.offers[self.connections] = {"A", "B", "LIMITED"}
        for service in sorted(self.offers[self.connections]):
            self.monitor.advertise(self.connections, service)
            self.check()
        while self.running:
            self.finish(0)
        assert [a.number for a in self.asked if a.is_wanted and not a.answers] == []
        assert self.monitor._calls.lines == {}
        assert self.monitor._calls.running == {}

    # helpers

    def _server(self, pick):
        return sorted(self.offers)[pick % len(self.offers)]

    def _asked(self, client, session=0, consumer=0, is_wanted=True):
        number = len(self.by_number) + 1
        asked = Asked(number, self.clients[client], session, consumer, is_wanted)
        self.by_number[number] = asked
        self.asked.append(asked)
        return asked

    @staticmethod
    def _data(asked):
        return b"%d" % asked.number


TestMonitorMachine = MonitorMachine.TestCase
TestMonitorMachine.__doc__ = "Each call is answered once, in turn, whatever happens around it."
