"""What the tests of the monitor share: a monitor, and what it wanted done since last asked."""

from hms.wire.structures import CallHead, InvokeHead, ResultHead
from tpmon.scheduling.monitor import TPSUCCESS, Answer, Invoke, Monitor, Origin

S1, S2, CLIENT, OTHER = 1, 2, 10, 11


class Rig:
    """A monitor, and what it wanted done since it was last asked."""

    def __init__(self, **options):
        self.monitor = Monitor(**options)

    def effects(self):
        effects = self.monitor.effects.copy()
        self.monitor.effects.clear()
        return effects

    def serve(self, connection, *services, name="", places=1):
        self.monitor.introduce(connection, name)
        for service in services:
            self.monitor.advertise(connection, service, "", places)

    def call(
        self, service, data=b"", *, client=CLIENT, correlation=1, timeout_ms=0, now_ms=0, **more
    ):
        head = CallHead(service, timeout_ms, **more)
        self.monitor.call(Origin(client, correlation), head, data, now_ms)

    def listen(self, service, data, *, client=CLIENT, session=1, consumer=1, expires_at_ms=0):
        origin = Origin(client, 0, session, data, consumer)
        head = InvokeHead(service, 0, 0, is_message=True)
        self.monitor.listen(origin, head, data, expires_at_ms)

    def finish(self, invoke, rval=TPSUCCESS, data=b"", **more):
        self.monitor.result(invoke.connection, ResultHead(invoke.head.call, rval, **more), data)


def answer_of(effects):
    (answer,) = effects
    assert isinstance(answer, Answer)
    return answer


def invoke_of(effects):
    (invoke,) = effects
    assert isinstance(invoke, Invoke)
    return invoke
