"""What clients are told of sends and commits over take-overs, moves and lost or late frames, at
random, held against what the log has in the end.

Clients reach three copies over wires of their own. HMS_HA=full: 400 sequences, else 24.
"""

import random
import threading
from contextlib import ExitStack

import pytest
from copies_rig import copies_in
from cut_wire import cut_wire
from failover_shells import IS_FULL, SHELLS, WAIT_S, Opened

import hms
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(900 if IS_FULL else 400)
CLIENTS = 8 if IS_FULL else 4
SEQUENCES = 50 if IS_FULL else 6
BRIEF_S = 3
"""Of a request: a take-over may take longer, and then it is in doubt."""
TROUBLES = ("", "", "lose up", "lose down", "hold up", "hold down")
STORED = {"STORED": True, "COMMITTED": True, "WITHDRAWN": False, "ROLLED_BACK": False}
SEED = 20_261_128


class Client(threading.Thread):
    """One sequence after the other; what has to be there in the end, by body, None for what nobody
    was told."""

    def __init__(self, group, number):
        super().__init__()
        self._random, self._number = random.Random(SEED + number), number
        self._stack, self._group, self._is_lost = ExitStack(), group, False
        self.wires = [
            self._stack.enter_context(cut_wire(one.address)) for one in group.nodes.values()
        ]
        self._shell = list(SHELLS.values())[number % 2]()
        self._stack.callback(self._shell.close)
        how = {"request_timeout_s": BRIEF_S, "connect_timeout_s": WAIT_S}
        addresses = [wire.address for wire in self.wires]
        self._plain = Opened(self._stack, self._shell, addresses, **how)
        self._transacted = Opened(self._stack, self._shell, addresses, transacted=True, **how)
        self.expected, self.told, self.faults, self.in_doubt = {}, [], [], 0

    def run(self):
        try:
            for number in range(SEQUENCES):
                self._sequence(number)
        except BaseException as fault:
            self.faults.append(fault)
            raise

    def close(self):
        """Its connections, over wires that pass everything on."""
        self._pass_on()
        self._stack.close()

    @property
    def errors(self):
        """What its exception listeners were told."""
        return [*self._plain.errors, *self._transacted.errors]

    def _sequence(self, number):
        chance, trouble = self._random, self._random.choice(TROUBLES)
        sends = chance.random() < 0.5
        bodies = [b"%d.%d.%d" % (self._number, number, i) for i in range(1 if sends else 3)]
        if trouble:
            what, way = trouble.split()
            self._is_lost = what == "lose"
            for wire in self.wires:
                getattr(wire, what)(way)
        begun = self._shell.begin(lambda: self._send(bodies) if sends else self._commit(bodies))
        if chance.random() < 0.5:
            for wire in self.wires:
                wire.cut_client()
        if chance.random() < 0.5:
            threading.Event().wait(chance.random() * BRIEF_S)  # when it heals is a part of the dice
            self._pass_on()
        said, token = self._said(begun, is_commit=not sends)
        if token is not None:
            assert token
            self.in_doubt += 1
            is_early = chance.random() < 0.5
            if not is_early:
                self._pass_on()  # late frames come before it is asked
            said = self._outcome(token)
            self._pass_on()
            assert self._outcome(token) == said, "an outcome has changed"
        self._pass_on()
        self.told.append((bodies, said))
        self.expected |= dict.fromkeys(bodies, said)

    def _said(self, begun, *, is_commit):
        """Whether it is stored, None for what is not known; a token of what is in doubt."""
        try:
            begun.result(WAIT_S)
        except (hms.SendInDoubt, hms.CommitInDoubt) as fault:
            return None, fault.token
        except hms.TransactionRolledBack:
            return False, None
        except (hms.TpConnectionClosed, hms.RequestTimeout):  # it was never asked of a node
            if is_commit:
                self._roll_back()
            return False, None
        return True, None

    def _roll_back(self):
        """What a commit has not been asked of; a node that says nothing keeps it waiting, too."""
        self._pass_on()

        def is_done():
            try:
                self._shell.do(self._transacted.session.rollback)
            except (hms.TpConnectionClosed, hms.RequestTimeout):
                return False
            return True

        wait_until(is_done, 2 * WAIT_S)

    def _send(self, bodies):
        return self._plain.producer.send(bodies[0])

    def _commit(self, bodies):
        session, producer = self._transacted.session, self._transacted.producer
        if self._number % 2 == list(SHELLS).index("asyncio"):
            return self._commit_later(session, producer, bodies)
        for one in bodies:
            producer.send_async(one)
        session.commit()
        return None

    @staticmethod
    async def _commit_later(session, producer, bodies):
        for one in bodies:
            producer.send_async(one)
        await session.commit()

    def _outcome(self, token):
        """By an operator's connection, until a copy that leads answers."""

        def answers():
            try:
                with self._group.direct(profile="") as connection:
                    return [STORED.get(connection.outcome(token).state)]
            except (hms.TpConnectionClosed, hms.RequestTimeout):
                return None

        return wait_until(answers, 2 * WAIT_S)[0]

    def _pass_on(self):
        """No connection goes on behind bytes that are missing in it."""
        is_lost, self._is_lost = self._is_lost, False
        for wire in self.wires:
            if is_lost:
                wire.cut_client()
            wire.pass_on()


@pytest.fixture
def group(tmp_path):
    config = {"hms": {"queue": {"orders": {}}}, "node": {"replica_timeout_s": 2}}
    with copies_in(tmp_path, **config) as made:
        made.heal()
        yield made


def test_nobody_is_told_a_false_outcome(group):
    """Whoever leads is killed, or moves, while clients send and commit; frames are lost, late,
    or not answered."""
    clients = [Client(group, number) for number in range(CLIENTS)]
    try:
        for one in clients:
            one.start()
        chance = random.Random(SEED)
        while any(one.is_alive() for one in clients):
            disturb(group, chance)
        for one in clients:
            one.join(WAIT_S)
        assert [fault for one in clients for fault in one.faults] == []
        group.wait_for_all()
        found = group.bodies()
    finally:
        for one in clients:
            one.close()
    assert len(found) == len(set(found)), "stored twice"
    expected = {body: said for one in clients for body, said in one.expected.items()}
    assert set(found) <= set(expected)
    false = {body: said for body, said in expected.items() if said not in (None, body in found)}
    assert false == {}
    for one in clients:
        assert not any(isinstance(error, hms.ConfirmedLost) for error in one.errors)
        for bodies, _ in one.told:
            assert len({body in found for body in bodies}) == 1, "a part of a transaction"


def disturb(group, chance):
    """Another one leads."""
    group.wait_for_all()
    if chance.random() < 0.5:
        group.move()
    else:
        name = group.leader
        group.nodes[name].kill()
        group.nodes[name].boot()
