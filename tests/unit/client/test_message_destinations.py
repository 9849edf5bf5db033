"""Destinations and constants: names, kinds and numbers of the HMS API."""

import pickle

import pytest

import hms.constants as c
from hms.client.destinations import Queue, Topic, parse_destination
from hms.errors.catalogue import DestinationNameError


def test_a_destination_is_a_value():
    """It is a key of dictionaries and may not change."""
    assert Queue("orders") == Queue("orders") != Topic("orders")
    assert len({Queue("a"), Queue("a"), Topic("a")}) == 2
    assert pickle.loads(pickle.dumps(Topic("a"))) == Topic("a")
    with pytest.raises(AttributeError):
        Queue("a").name = "b"
    assert (Queue("a").kind, Topic("a").kind) == ("queue", "topic")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders", Queue("orders")),
        ("queue:orders", Queue("orders")),
        ("topic:x", Topic("x")),
        ("other:x", Queue("other:x")),
        ("queue:queue:x", Queue("queue:x")),
        (Topic("x"), Topic("x")),
    ],
)
def test_a_destination_is_read_from_its_text(text, expected):
    """The command line and reply-to use this form."""
    assert parse_destination(text) == expected
    assert parse_destination(str(expected)) == expected


@pytest.mark.parametrize("name", ["", "x" * 256, "a\nb", "a\0", "\ud800", 7, None, b"orders"])
@pytest.mark.parametrize("kind", [Queue, Topic])
def test_a_name_that_cannot_be_printed_is_refused(kind, name):
    """Names stand in logs, files and command lines."""
    with pytest.raises(DestinationNameError):
        kind(name)


@pytest.mark.parametrize("name", ["orders", "HMS.DLQ", "a/b/#", "주문", "two words", "x" * 255])
def test_a_printable_name_is_taken(name):
    """Any script, with the separators that topics and system queues use."""
    assert Queue(name).name == name


def test_the_constants_have_the_numbers_of_tmax():
    """A program in C and one in Python must mean the same."""
    types = ["CHAR", "SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "STRING", "CARRAY"]
    assert [getattr(c, f"HMS_{name}") for name in types] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert (c.HMS_AUTO_ACK, c.HMS_DUPS_OK_ACK, c.HMS_CLIENT_ACK) == (0, 1, 2)
    sessions = ("NORMAL", "TRANSACTED", "XA", "ASYNC")
    assert [getattr(c, f"HMS_{name}_SESSION") for name in sessions] == [0, 1, 2, 3]
    assert (c.HMS_QUEUE, c.HMS_TOPIC, c.HMS_DURABLE) == (0, 1, 2)
    assert (c.HMS_DLV_NON_PERSISTENT, c.HMS_DLV_PERSISTENT) == (0, 1)
    assert (c.HMS_ACK_ONE, c.HMS_ACK_UPTHROUGH, c.HMS_QB_FIRST, c.TPFAIL_ACK) == (1, 2, 1, -1)
    assert c.HMSMessageID == "$MessageID"
    assert c.HMSCallSvcname16 == "@HMSCallSvcNM16@"
    assert [int(mode) for mode in c.AckMode] == [0, 1, 2, 3]
    assert c.AckMode.CLIENT == c.HMS_CLIENT_ACK
    assert c.DeliveryMode.PERSISTENT == c.HMS_DLV_PERSISTENT


def test_every_constant_is_exported():
    """`from hms.constants import *` is how the Tmax layer takes them."""
    public = {name for name in vars(c) if name.startswith(("HMS", "TPFAIL"))}
    assert public <= set(c.__all__)


def test_topics_are_equal_when_they_read_the_same():
    """Else the topic of a received message would not equal the one that was published on."""
    assert Topic("T", "x") == Topic("T/x") == Topic("", "T/x") != Topic("T")
    assert len({Topic("T", "x"), Topic("T/x"), Topic("", "T/x")}) == 1
    assert Topic("T") != Queue("T")
