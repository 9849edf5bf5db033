"""Header fields in selectors: each under JMS's name and ours, and no name that is none."""

import pytest

from hms.engine.messages import StoredMessage
from hms.engine.selector.selector_fields import ADDED, NAMES, checked_selector, selector_view
from hms.errors.catalogue import SelectorSyntaxError
from hms.wire.packed_messages import Head, encode_head

AT_MS = 1_700_000_000_500


def message(node=None, **fields):
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
    assert matches(text, message(correlation_id="c", type="t", reply_to="queue:r")) is True


def test_what_is_not_said_is_unknown():
    """As an absent property."""
    for name in ("JMSCorrelationID", "$Type", "JMSReplyTo", *ADDED):
        assert matches(f"{name} IS NULL", message()) is True


@pytest.mark.parametrize("name", sorted(ADDED))
def test_what_the_node_adds_can_be_asked_for(name):
    """Such as why a message became a dead letter."""
    assert matches(f"{name} = 'x'", message({name: "x"})) is True


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
