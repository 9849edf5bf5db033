"""How busy a node's threads are: shares over some seconds, and the slowest turns."""

from hms.boot.monitoring.node_load import SHARE_S, NodeLoad
from hms.workers.load import PoolLoad


def test_a_share_is_of_the_last_seconds_and_a_depth_of_the_last_look():
    """One look sees a moment: a worker that is busy then may have slept all the time."""
    now = PoolLoad(workers=4, busy=2, waiting=7, deepest=5)
    load = NodeLoad({"general": lambda: now}, lambda: 9, lambda: 0.0)
    assert load.describe()["pools"] == {}
    load.look()
    now = PoolLoad(workers=4, busy=0, waiting=0, deepest=0)
    load.look()
    about = {"workers": 4, "busy": 0.25, "waiting": 0, "deepest": 0}
    assert load.describe()["pools"] == {"general": about}
    for _ in range(SHARE_S):
        load.look()
    assert load.describe()["pools"]["general"]["busy"] == 0


def test_the_slowest_turn_of_each_second_is_counted_and_passed_on():
    """The alert asks for it, and asking forgets it: nobody else may."""
    turns = iter((0.0002, 0.3))
    load = NodeLoad({}, lambda: 9, lambda: next(turns))
    assert [load.slowest_turn_s(), load.slowest_turn_s()] == [0.0002, 0.3]
    told = load.describe()["main_loop"]
    assert (told["turns"], sum(told["slowest_s"]["counts"])) == (9, 2)
    assert round(told["slowest_s"]["sum"], 6) == 0.3002
