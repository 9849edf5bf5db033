"""The rules of permissions: additive, denied by default, inherited below a topic."""

from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hms.engine.security import (
    BUILT_IN,
    Policy,
    Role,
    Unacceptable,
    check_roles,
    doubt_about,
    read_permission,
)
from hms.engine.security.actions import KINDS_OF, LATER
from hms.engine.security.roles import DEPTH_MAX
from hms.engine.topic.patterns import Pattern, Scheme
from hms.wire.commands import Action

LEVELS = ("a", "b", "+", "#")


def rights(*permissions, name="r"):
    roles = {name: Role(tuple(map(read_permission, permissions)))}
    return Policy(roles).rights_of([name])


@pytest.mark.parametrize(
    ("permission", "allowed", "refused"),
    [
        ("produce queue:orders", ["orders"], ["Orders", "orders2", "order", ""]),
        ("produce queue:orders.*", ["orders.", "orders.a.b"], ["orders", "xorders.a"]),
        ("produce queue:o?d", ["old", "odd"], ["od", "oldd"]),
        ("produce queue:*", ["anything"], ["HMS.DLQ", "HMS."]),
        ("produce queue:HMS.*", ["HMS.DLQ"], ["orders"]),
        ("produce queue:a+b(c", ["a+b(c"], ["aab(c"]),
        ("publish topic:prices", ["prices", "prices/oil", "prices/"], ["price", "pricesx", "a"]),
        ("publish topic:a/+/c", ["a/b/c", "a/x/c/d"], ["a/c", "a/b/d"]),
        ("publish topic:#", ["a", "/", "a//b"], ["HMS.BASE.TOPIC", "HMS.x/y", "HMS", "HMS/x"]),
        ("subscribe topic:+/alert/#", ["x/alert/y"], ["HMS/alert/y"]),
        ("subscribe topic:HMS/alert/#", ["HMS/alert", "HMS/alert/y"], ["HMS", "HMS/x", "a"]),
        ("subscribe topic:HMS", ["HMS", "HMS/alert/y"], ["HMSX", "HMS.BASE.TOPIC"]),
        ("operate node:*", ["NODE1"], []),
    ],
)
def test_a_permission_covers_what_its_pattern_names(permission, allowed, refused):
    """The node's own resources are covered by patterns that name them alone."""
    one = read_permission(permission)

    assert [name for name in allowed if not one.covers(name)] == []
    assert [name for name in refused if one.covers(name)] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prduce queue:x", "did you mean 'produce'?"),
        ("PRODUCE queue:x", "unknown action"),
        ("produce queu:x", "did you mean 'queue'?"),
        ("produce topic:x", "it is about queue"),
        ("produce", "produce queue:PATTERN"),
        ("produce queue:", "produce queue:PATTERN"),
        ("produce orders", "produce queue:PATTERN"),
        ("operate node:NODE*", "* or the whole name"),
        ("produce queue:" + "x" * 256, "at most 255"),
        ("produce queue:a\0b", "printable"),
        ("publish topic:" + "/" * 300, "at most 255"),
        ("post event:x", "no command of this version"),
        ("", "unknown action"),
    ],
)
def test_what_cannot_stand_is_refused_with_the_nearest_valid_word(text, said):
    """A permission that is silently without effect is one that somebody relied on."""
    with pytest.raises(Unacceptable) as caught:
        read_permission(text)

    assert said in str(caught.value)


def test_every_action_of_the_commands_can_be_granted_or_is_refused_with_its_reason():
    """An action that no permission can name would lock everybody out of its commands."""
    named = {*KINDS_OF, Action.OWN}

    assert named == set(Action)
    assert LATER.isdisjoint(action.value for action in Action)


def test_nothing_is_allowed_unless_it_was_granted():
    """Deny is the default, also for names of roles that there are not."""
    for known in ([], ["nobody"]):
        nothing = Policy().rights_of(known)
        assert not any(
            nothing.allows(action, kind, "x")
            for action, kinds in KINDS_OF.items()
            for kind in kinds
        )


@given(
    st.permutations(["produce queue:a*", "produce queue:*b", "consume queue:a", "call service:x"])
)
def test_the_order_of_permissions_and_roles_counts_for_nothing(shuffled):
    """Whoever reads a policy must not have to play it through."""
    roles = {str(i): Role((read_permission(text),)) for i, text in enumerate(shuffled)}
    apart = Policy(roles).rights_of(roles)
    together = rights(*shuffled)

    for action, name in product((Action.PRODUCE, Action.CONSUME), ("a", "b", "ab", "c")):
        assert apart.allows(action, "queue", name) == together.allows(action, "queue", name)


@given(
    st.lists(st.sampled_from(LEVELS), min_size=1, max_size=3),
    st.lists(st.sampled_from(LEVELS), min_size=1, max_size=3),
)
@example(["#", "b", "a"], ["a", "a", "a"])  # met six levels down only
def test_a_subscription_reaches_a_grant_exactly_when_some_topic_matches_both(wanted, granted):
    """Accepted, it must be able to deliver; refused, it could never have."""
    one, pattern = (
        read_permission(f"subscribe topic:{'/'.join(granted)}"),
        Pattern("/".join(wanted)),
    )
    names = ("a", "b", "x")
    topics = ["/".join(t) for n in range(1, 7) for t in product(names, repeat=n)]

    assert one.reaches(pattern) == any(pattern.matches(t) and one.covers(t) for t in topics)


@given(
    st.lists(st.sampled_from(LEVELS), min_size=1, max_size=4),
    st.lists(st.sampled_from(LEVELS), min_size=1, max_size=4),
)
def test_a_pattern_that_is_covered_matches_nothing_else(wanted, granted):
    """Clearing by a pattern takes all that it matches."""
    one = read_permission(f"purge topic:{'/'.join(granted)}")
    pattern = Pattern("/".join(wanted))
    topics = ["/".join(levels) for n in range(1, 6) for levels in product("abc", repeat=n)]
    is_all = all(one.covers(topic) for topic in topics if pattern.matches(topic))

    assert is_all or not one.covers_all(pattern)
    is_plain = "#" not in [*wanted[:-1], *granted[:-1]] and len(wanted) + len(granted) < 6
    if is_plain and not ("#" in wanted and "+" in granted):  # + does not say that it takes all of #
        assert one.covers_all(pattern) == is_all


def test_a_pattern_of_characters_reaches_what_its_levels_may():
    """It is looked at as the wider pattern of levels; each delivery is checked by itself."""
    may = rights("subscribe topic:prices/oil")

    assert may.reaches(Action.SUBSCRIBE, Pattern("prices/o*", Scheme.CHARACTER))
    assert not may.reaches(Action.SUBSCRIBE, Pattern("news/o*", Scheme.CHARACTER))


@pytest.mark.parametrize(
    ("granted", "wanted", "is_met"),
    [
        ("#", "HMS/#", False),
        ("+/alert/#", "HMS/alert/+", False),
        ("HMS/#", "#", False),
        ("HMS/alert/#", "+/alert/#", False),
        ("HMS/#", "HMS/alert/+", True),
        ("HMS/alert/#", "HMS/+/x", True),
    ],
)
def test_only_a_pattern_that_says_so_is_about_the_nodes_topics(granted, wanted, is_met):
    """Granted or wanted: a wildcard in the first level stands for none of them."""
    assert read_permission(f"subscribe topic:{granted}").reaches(Pattern(wanted)) is is_met
    is_all = read_permission(f"purge topic:{granted}").covers_all(Pattern(wanted))
    assert not is_all or is_met
    assert read_permission("purge topic:HMS/#").covers_all(Pattern("HMS/alert/+"))


def test_a_role_has_what_those_have_that_it_includes():
    """The explanation names the way of roles to the deciding permission."""
    roles = {
        "base": Role((read_permission("consume queue:in"),)),
        "team": Role((), ("base",)),
        "lead": Role((), ("team", "monitor")),
    }
    may = Policy(roles).rights_of(["lead"])

    assert list(check_roles(roles)) == []
    assert may.explain(Action.CONSUME, "queue", "in").by == (
        "consume queue:in (role lead > team > base)",
    )
    assert may.allows(Action.VIEW, "queue", "HMS.DLQ")


def test_an_explanation_of_a_refusal_names_what_comes_near():
    """The administrator sees what is missing, not only that something is."""
    said = rights("consume queue:in", "produce queue:out").explain(Action.PRODUCE, "queue", "in")

    assert not said.is_allowed
    assert said.by == ("produce queue:out (role r)", "consume queue:in (role r)")


def test_roles_in_a_circle_unknown_built_in_and_too_deep_ones_are_told():
    """Each fault is told at the role that has it."""
    chain = {f"r{i}": Role((), (f"r{i + 1}",)) for i in range(DEPTH_MAX + 1)}
    chain[f"r{DEPTH_MAX + 1}"] = Role()
    roles = {"a": Role((), ("b",)), "b": Role((), ("a",)), "c": Role((), ("admn",)), **chain}
    faults = dict(check_roles({**roles, "admin": Role()}))

    assert faults["a"].endswith("a > b > a")
    assert faults["b"].endswith("b > a > b")
    assert faults["c"] == "there is no role 'admn' (did you mean 'admin'?)"
    assert faults["admin"].startswith("role 'admin' is built in")
    assert (
        faults["r0"] == f"roles include one another {DEPTH_MAX + 1} deep; {DEPTH_MAX} are allowed"
    )
    assert "r1" not in faults


def test_built_in_roles_cannot_be_replaced():
    """A file that could would make everybody an administrator under the name of monitor."""
    mine = {"monitor": Role((read_permission("secure user:*"),))}

    assert not Policy(mine).rights_of(["monitor"]).allows(Action.SECURE, "user", "x")
    assert BUILT_IN["admin"].permissions[0].action is not Action.SECURE
    assert not Policy().rights_of(["admin"]).allows(Action.SECURE, "user", "x")


def test_two_users_with_the_same_roles_share_one_set_of_rights():
    """Compiling is per set of roles: 10,000 users of one role cost one."""
    policy = Policy()

    assert policy.rights_of(["admin", "security"]) is policy.rights_of(["security", "admin"])


def test_a_pattern_of_many_stars_takes_no_longer_than_one():
    """A permission is matched for every new name; its author must not be able to stop the node."""
    one = read_permission("consume queue:" + "*" * 100 + "x")

    assert not one.covers("a" * 255)


@pytest.mark.parametrize(
    ("permission", "meant"),
    [
        ("subscribe topic:*", "did you mean subscribe topic:#?"),
        ("publish topic:orders/**", "did you mean publish topic:orders/+?"),
        ("subscribe topic:a/*/?", "did you mean subscribe topic:a/+/+?"),
        ("subscribe topic:prices.*", "nothing stands for a part of a level"),
        ("subscribe topic:*/a?", "nothing stands for a part of a level"),
    ],
)
def test_a_star_in_a_topic_is_told_with_what_was_meant(permission, meant):
    """It is a letter there: the permission is accepted, and grants nothing."""
    one = read_permission(permission)
    assert not one.covers("orders/new")
    assert doubt_about(one).startswith(f"{permission}: ")
    assert doubt_about(one).endswith(meant)


@pytest.mark.parametrize(
    "permission", ["subscribe topic:#", "subscribe topic:a/+", "produce queue:*", "view queue:a?"]
)
def test_what_stands_for_others_is_in_no_doubt(permission):
    """A warning that is always there is not read."""
    assert doubt_about(read_permission(permission)) == ""
