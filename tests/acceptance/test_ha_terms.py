"""How often another copy came to lead: counted in the log, so by whoever leads."""

from tests.acceptance.ha_rig import WAIT_S, connect, hms_command, switch_over
from tests.acceptance.pair_rig import arbiter, pair
from tests.support.waiting import wait_until


def counts(two):
    told = two.replication()
    return told["take_overs"], told["switchovers"]


def test_take_overs_and_switchovers_are_counted_over_both_and_over_boots(tmp_path):
    """The counts were in no status; those of a process would begin anew with each of them."""
    with arbiter(tmp_path) as decided_by, pair(tmp_path, decided_by) as two:
        two.boot()
        assert counts(two) == (0, 0)
        switch_over(two.machines)
        wait_until(lambda: two.replication()["replica"] == "b", WAIT_S)
        two.wait_for_both()
        assert counts(two) == (0, 1)
        two.b.kill()
        wait_until(lambda: two.replication()["replica"] == "a", WAIT_S)
        assert counts(two) == (1, 1)
        two.boot()

        for one in (two.b, two.a):  # none is there, so nobody takes anything over
            one.stop()
        two.a.boot()
        two.boot()

        assert (two.replication()["replica"], *counts(two)) == ("a", 1, 1)
        metrics = hms_command(two.a, "metrics")[1]
        for name in ("take_overs", "switchovers"):
            assert f'hms_replica_{name}_total{{node="node1"}} 1\n' in metrics
        with connect(two.a) as connection, connection.session() as session:
            session.producer("orders").send(b"as before")
