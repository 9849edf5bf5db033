"""An asynchronous replica counts never: what is confirmed, who is taken in, and who campaigns."""

import pytest
from msgspec import structs

from hms.server.arbiter import Configuration, Leader, Member, Standing
from hms.server.arbiter.interface import goes_on_alone
from hms.server.replicas.confirmation import Confirmation, Limits
from hms.server.replicas.leadership import Campaign, Follow, Leadership
from hms.server.replicas.primary import Primary
from tests.sim.replicas.world import World

LOG = "ab" * 16
A, B, C = (Member(name, digit * 32, 1) for name, digit in zip("abc", "123", strict=True))
LIMITS = Limits(1, 2.0, 60.0)


def leads(*members, copies, far="c", me=A, limits=LIMITS):
    """A primary at time 100, to whom all others came with all up to mark 1."""
    now = Configuration(5, LOG, 3, me.name, 1, members, copies)
    made = Confirmation(now, me, limits, 100, 100, frozenset(far))
    made.written = 1
    for one in {A, B, C} - {me}:
        made.joined(one, 100)
        made.whole(one.copy_id, 1)
    return made


def names(now):
    return None if now is None else "".join(one.name for one in now.members)


def settle(made, now_s):
    """What is wanted, until nothing is: each configuration's names and copies."""
    found = []
    while (new := made.wanted(now_s)) is not None:
        made.asking(new)
        if not made.may_ask(new):
            break
        found.append((names(new), new.copies))
        made.settled(new)
    return found


def test_what_an_asynchronous_copy_has_confirms_nothing_and_blocks_nothing():
    """It has all, and the other member has not."""
    made = leads(A, B, copies=2)
    made.synced(1)
    made.acked(C.copy_id, 1)
    assert not made.is_confirmed(1)
    assert made.wanted(101) is None

    made.acked(B.copy_id, 1)

    assert made.is_confirmed(1)
    for at in (102, 130, 161):
        made.heard(B.copy_id, at)
    assert made.wanted(161) is None  # c was silent for more than lost_s
    assert made.failures_survived(161) == 1


def test_a_copy_whose_disk_was_replaced_is_one_row():
    """The old one would be away until another machine leads, and `hms replica verify` took it for
    the copy of that machine, which it called behind."""
    made = leads(A, B, copies=2)
    new = structs.replace(C, copy_id="4" * 32)
    made.joined(new, 110)
    for one in (B, new):
        made.heard(one.copy_id, 110)

    found = {(row["replica"], row["copy"]) for row in made.describe(110)}

    assert found == {("b", B.copy_id), ("c", new.copy_id)}


def test_a_member_whose_disk_was_replaced_is_shown_until_the_new_copy_counts():
    """Nothing hides that a copy which counts is away."""
    made = leads(A, B, copies=2, far="")
    new = structs.replace(B, copy_id="4" * 32)
    made.joined(new, 110)

    found = [row["copy"] for row in made.describe(110) if row["replica"] == "b"]

    assert found == [B.copy_id, new.copy_id]


def test_one_that_counts_is_enough_with_a_copy_elsewhere():
    """It is confirmed by itself, as a log alone is."""
    made = leads(A, copies=1, far="bc")
    made.synced(1)

    assert made.is_confirmed(1)
    made.acked(B.copy_id, 1)
    assert settle(made, 101) == []


def test_a_member_that_was_made_asynchronous_leaves_by_a_change():
    """It counts until the arbiter has it: what is confirmed meanwhile is durable at enough of the
    old members and of the new ones."""
    made = leads(A, B, C, copies=2)
    made.synced(1)
    made.acked(C.copy_id, 1)
    assert made.is_confirmed(1)
    assert made.wanted(101) is None  # b has not what a and c confirmed
    made.acked(B.copy_id, 1)
    new = made.wanted(101)
    assert (names(new), new.copies) == ("ab", 2)

    made.written = 2
    made.asking(new)
    made.synced(2)
    made.acked(C.copy_id, 2)
    assert not made.is_confirmed(2)  # by both rules
    assert made.may_ask(new)
    made.settled(new)

    made.acked(B.copy_id, 2)
    assert made.is_confirmed(2)
    made.add("c")
    made.acked(C.copy_id, 2)
    assert settle(made, 101) == [("abc", 2)]


@pytest.mark.parametrize(("copies_min", "left"), [(1, "ab"), (2, "ab"), (3, "abc")])
def test_it_leaves_only_while_enough_others_are_members(copies_min, left):
    """copies_min holds for those that count."""
    made = leads(A, B, C, copies=2, limits=Limits(copies_min, 2.0, 60.0))
    made.synced(1)
    made.acked(B.copy_id, 1)
    made.acked(C.copy_id, 1)

    settle(made, 101)

    assert names(made.now) == left


def test_one_that_was_removed_counts_where_an_operator_promotes_it():
    """Else the first change of members would leave out the one that leads."""
    now = Configuration(7, "1f" * 16, epoch=3, members=(A, B), copies=2, removed=("b", "c"))

    alone = goes_on_alone(now, C)

    assert (alone.version, alone.members, alone.copies) == (8, (C,), 1)
    assert (alone.removed, alone.lossy, alone.is_forced) == (("b",), (3,), True)


def test_one_that_an_operator_promoted_counts_while_it_leads_and_no_longer():
    """Those that come back are taken in beside it; under the next primary it leaves."""
    made = leads(C, copies=1, me=C)
    made.synced(1)
    assert made.is_confirmed(1)
    made.acked(A.copy_id, 1)
    assert settle(made, 101) == [("ca", 2)]
    assert made.lacks("a", 101) == ""

    then = leads(C, A, copies=2)
    then.synced(1)
    then.acked(C.copy_id, 1)
    then.acked(B.copy_id, 1)
    assert settle(then, 101) == [("ab", 2)]


def test_a_move_to_it_is_refused_with_the_reason():
    """Whatever it has."""
    made = leads(A, B, copies=2)
    made.synced(1)
    made.acked(C.copy_id, 1)

    assert "it is ASYNC" in made.lacks("c", 101)
    assert "it is ASYNC" in made.hand_over("c", 101)
    assert made.successor == ""


def test_the_lag_of_a_copy_far_away_is_that_of_what_it_lacks():
    """Under load it never has all that is written, and is a second behind nevertheless."""
    made = leads(A, B, copies=2)
    at_s = 100.0
    for second in range(1, 60):
        at_s += 1
        made.written, made.written_bytes = 1 + 10 * second, 1000 * second
        made.heard(C.copy_id, at_s)
        made.acked(C.copy_id, made.written - 10)
    row = next(one for one in made.describe(at_s) if one["replica"] == "c")

    assert (row["mode"], row["state"]) == ("ASYNC", "IN_SYNC")
    assert 1 <= row["lag_s"] <= 2
    assert 1000 <= made.lag_bytes(C.copy_id) <= 2000
    row = next(one for one in made.describe(at_s + 50) if one["replica"] == "c")
    assert row["state"] == "AWAY"
    assert row["lag_s"] >= 51


def follower(*, is_async=True, me=B):
    made = Leadership(me.name, me.copy_id, 8, 3, LOG, lease_s=5, is_async=is_async)
    made.begin(100)
    return made


def standing(*members, **changes):
    given = {"version": 5, "log": LOG, "epoch": 3, "primary": "a", "start": 4}
    return Standing(Configuration(members=members, **{**given, **changes}))


def test_a_member_that_was_made_asynchronous_does_not_take_over_by_itself():
    """Unless others give way to it, as it goes further, or it led last; alone it goes on."""
    assert follower(is_async=False).decide(standing(A, B), 200) == Campaign(5)

    one = follower()

    assert isinstance(one.decide(standing(A, B), 200), Follow)
    given = structs.replace(standing(A, B), preferred="b")
    assert one.decide(given, 200) == Campaign(5)
    assert follower().decide(standing(A, B, primary="b"), 200) == Campaign(5)
    assert follower().decide(standing(B), 200) == Campaign(5)
    led = structs.replace(standing(B), leader=Leader("a", 3))
    assert isinstance(follower().decide(led, 200), Follow)


@pytest.fixture
def world():
    """Two copies that count and one far away, which all have everything."""
    made = World(8, far=1)
    made.heal()
    assert made.faults == []
    return made


def led_in(world):
    return next(one for one in world.processes.values() if one.log is not None)


def test_one_far_away_that_stands_still_raises_an_alert_and_nothing_else(world):
    """What is written goes on; what waits for it is bounded; then it gets what it lacks."""
    led = led_in(world)
    primary: Primary = led.primary
    assert set(primary.troubles().values()) == {""}
    world.paused["c"] = float("inf")
    before = len(world.confirmed)
    for _ in range(1500):
        if not led.log.step():
            led.log.write(4)
        world.step()

    assert len(world.confirmed) > before + 200
    told = primary.troubles()
    assert told["replica_behind"].startswith("c, which is ASYNC, is AWAY and ")
    assert (told["replica_unprotected"], told["replica_blocked"]) == ("", "")
    row = next(one for one in primary.describe()["replicas"] if one["replica"] == "c")
    assert row["lag_bytes"] > 200 * 40
    assert primary.describe()["is_protected"]
    del world.paused["c"]
    world.heal()
    assert world.faults == []
    assert set(led_in(world).primary.troubles().values()) == {""}
    row = next(one for one in led_in(world).primary.describe()["replicas"] if one["replica"] == "c")
    assert (row["lag_bytes"], row["lag_s"]) == (0, 0)


def test_a_new_disk_of_one_far_away_ends_the_alert_of_the_old_one(world):
    """The old copy is away for good."""
    primary = led_in(world).primary
    world.kill("c", is_power=True)
    world.replace_disk("c")
    for _ in range(500):
        world.step()

    copies = [row for row in primary.describe()["replicas"] if row["replica"] == "c"]
    assert [row["state"] for row in copies] == ["IN_SYNC"]
    assert primary.troubles()["replica_behind"] == ""
    assert world.faults == []


def test_one_that_is_to_lead_in_a_moment_stays_a_member():
    """Its mode was changed while the primary hands over."""
    made = leads(A, B, C, copies=2, far="")
    made.synced(1)
    made.acked(B.copy_id, 1)
    made.acked(C.copy_id, 1)
    assert made.hand_over("c", 101) == ""

    made.add("c", is_async=True)

    assert settle(made, 101) == []


def test_one_that_never_came_is_told_of(world):
    """Its row stands there, and the alert."""
    led = led_in(world)
    world.kill("c", is_power=False)
    other = next(name for name in "ab" if name != led.name)
    led.primary.hand_over(other)
    world.kill(led.name, is_power=False)
    world.is_healing = False
    world.paused["c"] = float("inf")
    world._acts = ()
    for _ in range(4000):
        world.turn(other)
        world.net.carry()
        world.now_s += 0.01
        if other in world.processes and world.processes[other].log is not None:
            break

    primary = led_in(world).primary
    row = next(one for one in primary.describe()["replicas"] if one["replica"] == "c")
    assert (row["state"], row["mode"], row["is_member"]) == ("AWAY", "ASYNC", False)
    assert "c, which is ASYNC, is AWAY" in primary.troubles()["replica_behind"]
