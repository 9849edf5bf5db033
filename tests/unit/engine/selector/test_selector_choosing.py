"""What selectors choose by, header fields under JMS's name and ours, and the selectors of a topic's
subscriptions, asked together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hms.engine.messages import StoredMessage
from hms.engine.queue.destinations import Subscription, Topic
from hms.engine.selector import Selector
from hms.engine.selector.equality import equality_of
from hms.engine.selector.selector_fields import ADDED, NAMES, checked_selector, selector_view
from hms.engine.topic.audience_draft import AudienceDraft, Change, renewed
from hms.engine.topic.choices import Choices
from hms.errors.catalogue import SelectorSyntaxError
from hms.records import Definition
from hms.wire.packed_messages import Head, encode_head

TEXTS = st.sampled_from(
    [
        "",
        "Key = 1",
        "Key = 1.0",
        "1 = Key",
        "Key = 'a'",
        "Key = TRUE",
        "Key = 9007199254740993",
        "Key = 9007199254740992.0",
        "Key IN ('a', 'b', 'a')",
        "Key NOT IN ('a')",
        "Key = 1 AND Other > 2",
        "Other > 2 AND Key = 'a'",
        "Key = 1 OR Other = 2",
        "NOT Key = 1",
        "Key <> 1",
        "Key IS NULL",
        "Other BETWEEN 1 AND 2",
        "JMSPriority = 4",
        "JMSPriority = 9 AND Key = 1",
    ]
)
VALUES = st.sampled_from(
    [0, 1, 1.0, 2, True, False, "a", "b", "", b"a", 2**53, 2**53 + 1, float(2**53), -0.0]
)
MESSAGES = st.lists(
    st.dictionaries(st.sampled_from(["Key", "Other"]), VALUES), min_size=1, max_size=5
)


def subscription(number, text):
    definition = Definition(number, "subscription", f"s{number}", topic=1, selector=text)
    made = Subscription(Topic(1, "news", -1), definition)
    made.order = number
    return made


def message(number, properties):
    head = encode_head(Head(properties))
    return StoredMessage.of(number, number, 1000, 0, 4, 0, len(head), head, is_persistent=True)


@given(st.lists(TEXTS, max_size=8), MESSAGES)
def test_the_audience_chooses_what_each_selector_chooses_alone(texts, properties):
    """An index that finds too little loses messages without a trace."""
    subscriptions = [subscription(i, text) for i, text in enumerate(texts, start=1)]
    messages = [message(i, one) for i, one in enumerate(properties, start=1)]

    expected = []
    for one in subscriptions:
        flags = one.chooses(messages) or [True] * len(messages)
        chosen = [m for m, is_it in zip(messages, flags, strict=True) if is_it]
        expected += [(one, chosen)] if chosen else []

    audience = audience_of(subscriptions)
    assert audience.choose(messages) == expected
    assert audience.choose(messages) == expected, "a second batch finds nothing of the first"


def places(audience):
    """Of the tables of its selectors."""
    return {name: table.keys() for name, table in audience.selecting.tables.items()}


def audience_of(subscriptions):
    """Made anew, at once."""
    draft = AudienceDraft(subscriptions, lambda _: Choices(), None)
    assert not draft.go_on(1 << 60, 0)
    return draft.audience(0, 0)


def assert_alike(audience, anew, messages):
    assert audience.choose(messages) == anew.choose(messages)
    assert audience.price_of(3, 100) == anew.price_of(3, 100)
    assert audience.names == anew.names
    assert audience.choices.keys() == anew.choices.keys()
    assert places(audience) == places(anew)
    assert audience.subscriptions == anew.subscriptions
    assert audience.controls == anew.controls
    assert (audience.logged_count, audience.is_logged) == (anew.logged_count, anew.is_logged)


@given(st.lists(st.tuples(st.integers(0, 9), TEXTS), max_size=12), st.integers(1, 4), MESSAGES)
def test_an_audience_made_from_the_last_one_is_as_one_made_anew(changes, steps, properties):
    """What changed is worked in, in slices; what the last one has stays as it was."""
    messages = [message(i, one) for i, one in enumerate(properties, start=1)]
    there, choices, before = {}, Choices(), []
    for number, text in changes:
        there.pop(number, None)
        there[number] = subscription(number, text)
        wanted = [there[each] for each in sorted(there)]
        choices = choices.copy()
        draft = AudienceDraft(wanted, lambda _, made=choices: made, None)
        while draft.go_on(steps, 0):
            pass
        audience = draft.audience(0, 0)
        before.append((audience, audience.choose(messages)))
        assert_alike(audience, audience_of(wanted), messages)
    for audience, chosen in before:
        assert audience.choose(messages) == chosen


@given(st.lists(TEXTS, max_size=9), st.lists(st.tuples(st.booleans(), TEXTS)), MESSAGES)
def test_what_changes_while_an_audience_is_made_is_worked_in(begun, changes, properties):
    """Subscriptions that came and went all the time had it made under one hold at last. So is what
    changes behind it."""
    messages = [message(i, one) for i, one in enumerate(properties, start=1)]
    there = [subscription(i, text) for i, text in enumerate(begun, start=1)]
    base, draft = audience_of([*there]), AudienceDraft([*there], lambda _: Choices(), None)
    first, since, made, later = base.choose(messages), [], None, []
    for number, (is_added, text) in enumerate(changes, start=100):
        if made is None and not draft.go_on(1, 0):
            made = draft.audience(0, 0)
        if is_added:
            there.append(subscription(number, text))
            since.append(Change(there[-1], is_added=True))
        elif there:
            since.append(Change(there.pop(number % len(there)), is_added=False))
        else:
            continue
        (draft.changes if made is None else later).append(since[-1])
    while made is None and draft.go_on(1, 0):
        pass

    anew = audience_of(there)
    assert_alike(renewed(made or draft.audience(0, 0), later, None, 0), anew, messages)
    assert_alike(renewed(base, since, None, 0), anew, messages)
    assert base.choose(messages) == first


def test_an_audience_is_renewed_by_time_and_by_what_owners_may_have():
    """Whose time is over gets nothing; whose owner may not have it is counted."""
    ending = Definition(
        1, "subscription", "s1", topic=1, created_ms=1, life_ms=99, selector="a = 1"
    )
    there = [Subscription(Topic(1, "news", -1), ending), subscription(2, "Key = 1")]
    there[0].order = 1
    denied, plain = subscription(3, "Key = 2"), subscription(4, "")
    base = audience_of(there)
    assert base.until_ms == 100
    changes = [Change(denied, is_added=True), Change(plain, is_added=True)]

    audience = renewed(base, changes, lambda one: one is not denied, 100)

    assert (audience.subscriptions, audience.withheld) == ([there[1], plain], [denied])
    assert audience.choices.keys() == {"Key = 1"}
    assert (audience.names, audience.until_ms) == ({"Key"}, 1 << 62)
    later = renewed(audience, [Change(denied, is_added=False)], None, 100)
    assert (later.subscriptions, later.withheld) == ([there[1], plain], [])
    assert renewed(later, [], None, 101) is later
    assert base.subscriptions == there


def test_only_those_are_asked_whom_a_message_can_fit(monkeypatch):
    """A thousand selectors that differ in one value must not cost a thousand questions."""
    asked = []
    subscriptions = [subscription(i, f"Key = {i}") for i in range(1, 1001)]
    for one in subscriptions:
        matches = one.selector.matches
        spy = lambda view, matches=matches: asked.append(1) or matches(view)  # noqa: E731
        monkeypatch.setattr(one.selector, "matches", spy, raising=False)

    audience = audience_of(subscriptions)
    chosen = audience.choose([message(1, {"Key": 7}), message(2, {"Key": 700})])

    assert [(s.name, [m.id for m in found]) for s, found in chosen] == [("s7", [1]), ("s700", [2])]
    assert len(asked) == 2


def test_a_property_that_decides_is_found_in_a_selector():
    """What has no such property is asked for every message."""
    assert equality_of(Selector("A > 1 AND B = 'x'").condition) == ("B", ("x",))
    assert equality_of(Selector("A IN ('x', 'y')").condition) == ("A", ("x", "y"))
    for text in ("A = 1 OR B = 2", "NOT A = 1", "A = B", "A = 9007199254740993", "A LIKE 'x'"):
        assert equality_of(Selector(text).condition) is None


def test_a_selector_sees_what_it_names_and_no_header_field_else():
    """One view serves all selectors; a name of another one's must not change an answer."""
    one = message(1, {"Key": 1})
    wide = selector_view(one, frozenset({"Key", "JMSPriority", "$Type"}))
    assert wide == {"Key": 1, "JMSPriority": 4}


class CountedNames(frozenset):
    """Counts the names that are copied to join it with others."""

    copied = 0

    def __ror__(self, other):
        CountedNames.copied += len(other)
        return other.union(self)

    def __iter__(self):
        CountedNames.copied += len(self)
        return super().__iter__()


def test_an_audience_joins_the_names_of_its_selectors_once():
    """Selectors over a thousand different properties took a million copies, and each change of a
    subscription as many again under the lock."""
    topic, subscriptions = Topic(1, "news", 3), []
    for number in range(200):
        definition = Definition(0, "subscription", f"s{number}", 1, selector=f"p{number} = 1")
        made = Subscription(topic, definition)
        made.selector.names = CountedNames(made.selector.names)
        subscriptions.append(made)
    CountedNames.copied = 0

    audience_of(subscriptions)

    assert CountedNames.copied <= 2 * 200


# header fields


AT_MS = 1_700_000_000_500


def message_with(node=None, **fields):
    head = encode_head(Head({"price": 5}, node=node or {}, **fields))
    return StoredMessage.of(
        0x2A, 1, AT_MS, AT_MS + 60_000, 7, 0, len(head), head + b"body", is_persistent=True
    )


def matches(text, one):
    selector = checked_selector(text)
    return selector.matches(selector_view(one, selector.names))


@pytest.mark.parametrize(
    "text",
    [
        "JMSMessageID = '00000000002a' AND $MessageID = '00000000002a'",
        f"JMSTimestamp = {AT_MS} AND $TimeStamp = {AT_MS / 1000}",
        "JMSPriority = 7 AND $Priority = 7",
        "JMSDeliveryMode = 'PERSISTENT' AND $DeliveryMode = 1",
        f"JMSExpiration = {AT_MS + 60_000} AND $Expiration = 60.0",
        f"JMSDeliveryTime = {AT_MS} AND $DeliveryTime = {AT_MS}",
        "JMSCorrelationID = 'c' AND $CorrelationID = 'c'",
        "JMSType = 't' AND $Type = 't'",
        "JMSReplyTo = 'queue:r' AND $ReplyTo = 'queue:r'",
    ],
)
def test_each_field_has_the_name_of_jms_and_ours(text):
    """The second one says what a receiver reads under that name in the properties."""
    assert matches(text, message_with(correlation_id="c", type="t", reply_to="queue:r")) is True


def test_what_is_not_said_is_unknown():
    """As an absent property."""
    for name in ("JMSCorrelationID", "$Type", "JMSReplyTo", *ADDED):
        assert matches(f"{name} IS NULL", message_with()) is True


@pytest.mark.parametrize("name", sorted(ADDED))
def test_what_the_node_adds_can_be_asked_for(name):
    """Such as why a message became a dead letter."""
    assert matches(f"{name} = 'x'", message_with({name: "x"})) is True


@pytest.mark.parametrize(
    ("text", "position", "detail"),
    [
        ("$Prio = 4", 0, "no header field $Prio"),
        ("price > 4 AND JMSXState = 'x'", 14, "no header field JMSXState"),
        ("price > 4 OR JMSPrio = 'JMSPrio'", 13, "no header field JMSPrio"),
        ("$Publisher = 'x'", 0, "no header field $Publisher"),
        ("JMSRedelivered = TRUE", 0, "belongs to a delivery"),
        ("$DeliveryCount > 2", 0, "belongs to a delivery"),
        ("JMSXDeliveryCount > 2", 0, "belongs to a delivery"),
        ("JMSDestination = 'orders'", 0, "belongs to a delivery"),
    ],
)
def test_a_name_that_looks_like_a_header_field_and_is_none_is_refused(text, position, detail):
    """It would be silently false for every message."""
    with pytest.raises(SelectorSyntaxError, match=detail.replace("$", r"\$")) as caught:
        checked_selector(text)
    assert caught.value.position == position


@pytest.mark.parametrize(
    "name", ["JMSXGroupID", "JMSXGroupSeq", "JMS_HMS_Any", "JMS_other", "price$"]
)
def test_names_that_a_sender_may_set_are_names(name):
    """JMSX… that HMS uses, every vendor's JMS_…, and a $ that is not at the beginning."""
    assert checked_selector(f"{name} = 'x'").names == {name}


def test_a_blank_selector_is_none():
    """It matches everything."""
    assert checked_selector(" ") is None
    assert len(NAMES) > len(ADDED)
