"""The behaviours that a resource manager must show, one by one; run them over your own adapter.

    @pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda b: b.__name__)
    def test_my_database(bench, behaviour):
        behaviour.run(bench)

A Bench says how to do a piece of work in a branch and how to see what is committed. What a resource
manager cannot do it leaves out of `able`; such behaviours then pass as not applicable.
"""

from tpmon.xa import behaviours, recovery_behaviours
from tpmon.xa.behaviour_bench import ABILITIES, FOUND, Behaviour, Bench

__all__ = ["ABILITIES", "BEHAVIOURS", "Behaviour", "Bench"]

_HOMES = (behaviours, recovery_behaviours)
BEHAVIOURS: tuple[Behaviour, ...] = tuple(FOUND)
"""All of them."""
assert {one.check.__module__ for one in BEHAVIOURS} == {home.__name__ for home in _HOMES}
