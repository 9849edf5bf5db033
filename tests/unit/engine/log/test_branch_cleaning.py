"""Branches in doubt while the log under them goes through several turns of its ring."""

import pytest
from test_log_cleaning import churn, life, live_numbers

from hms.engine.effects import Effects
from hms.engine.xa.xa_codes import TMSUCCESS, Code
from tests.support.branch_rig import xid

XA = 5


class Moving:
    """A node with an XA session that has moved orders to the busy queue in a branch."""

    def __init__(self, path):
        self.node = life(path)
        self.node.engine.open_session(1, XA, 0, "xa")
        self.node.engine.open_producer(1, 51, XA, "queue", "orders")

    @property
    def branches(self):
        return self.node.engine.branches

    def prepare(self, name, bodies):
        """Receive all that waits, and send these, in a prepared branch."""
        node = self.node
        assert self.branches.start(1, XA, name, 0, 0, node.now_ms).code == Code.OK
        taken = node.consume(3, 1000, session=XA)
        node.acknowledge(taken, 3)
        node.publish(1, bodies, producer=51)
        self.run("end", 1, XA, name, TMSUCCESS)
        assert self.run("prepare", name) == Code.OK
        node.run(lambda fx, now: node.engine.close_consumer(1, 3, now, fx))
        return taken

    def run(self, what, *arguments, **named):
        """A command on a branch; its code."""
        found = []
        call = getattr(self.branches, what)
        self.node.run(lambda fx, now: found.append(call(*arguments, now, fx, **named)))
        return found[0].code


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_branch_in_doubt_is_whole_after_its_records_were_let_go(tmp_path, is_committed):
    """Its vote, what it received and what it sends are live, however old."""
    moving = Moving(tmp_path)
    moving.node.publish(1, [b"received %d" % i for i in range(5)])
    moving.prepare(xid(), [b"sent %d" % i for i in range(5)])
    churn(moving.node, 200)
    assert live_numbers(tmp_path)[0] > 3
    moving.node.close()

    again = Moving(tmp_path)
    assert again.branches.recover(0, 10, Effects())["xids"] == [xid()]
    assert again.node.waiting() == []
    if is_committed:
        again.run("commit", xid(), is_one_phase=False, is_again=False)
    else:
        again.run("rollback", xid())

    word = b"sent" if is_committed else b"received"
    assert [body for _, body, _, _ in again.node.waiting()] == [word + b" %d" % i for i in range(5)]
    assert again.node.engine.state.branches.held_bytes == 0
    again.node.close()


def test_what_was_ended_stays_ended_when_the_log_is_cleaned(tmp_path):
    """A vote that came back from an old segment would be committed a second time."""
    moving = Moving(tmp_path)
    moving.node.publish(1, [b"received"])
    moving.prepare(xid(), [b"sent"])
    churn(moving.node, 100)
    moving.run("commit", xid(), is_one_phase=False, is_again=False)
    churn(moving.node, 200, first=50_000)
    moving.node.close()

    again = Moving(tmp_path)
    assert again.branches.recover(0, 10, Effects())["xids"] == []
    assert [body for _, body, _, _ in again.node.waiting()] == [b"sent"]
    again_code = again.run("commit", xid(), is_one_phase=False, is_again=True)
    assert again_code == Code.OK
    again.node.close()
