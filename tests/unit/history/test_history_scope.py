"""The options that say which events are asked for."""

import pytest

from hms.errors.catalogue import HistoryError
from hms.history.events import Place
from hms.history.scope import Scope, parse_destination, parse_scope, parse_time_ms

ORDERS = Place("orders", "queue")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1700000000123", 1_700_000_000_123),
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01", 0),
        ("1970-01-01T00:00", 0),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1970-01-01T00:00:00.007999Z", 7),
        ("1969-12-31T23:59:59.9999Z", -1),
    ],
)
def test_a_time_is_iso_8601_in_utc_or_milliseconds(text, expected):
    """A time without a zone must not mean something else on another machine."""
    assert parse_time_ms(text) == expected


@pytest.mark.parametrize("text", ["yesterday", "-5", "2026-13-01", "1.5"])
def test_what_is_no_time_is_refused(text):
    """A window that is misread would replay the wrong messages."""
    with pytest.raises(HistoryError, match="is no time"):
        parse_time_ms(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders", (None, "orders")),
        ("queue:orders", ("queue", "orders")),
        ("queue/orders", ("queue", "orders")),
        ("topic:a/b:c", ("topic", "a/b:c")),
        ("area:orders", (None, "area:orders")),
        ("queue:", (None, "queue:")),
    ],
)
def test_a_destination_is_a_kind_and_a_name_or_a_name(text, expected):
    """Names may hold any printable character, also those that separate."""
    assert parse_destination(text) == expected


def test_a_window_takes_its_beginning_and_not_its_end():
    """Windows side by side neither miss an event nor show it twice."""
    scope = parse_scope({"from": "1000", "to": "2000"})

    assert [scope.wants("sent", ORDERS, at) for at in (999, 1000, 1999, 2000)] == [
        False,
        True,
        True,
        False,
    ]


def test_option_names_are_read_whatever_their_case():
    """Spark hands all of them over in small letters."""
    scope = parse_scope({"STARTINGTIMESTAMP": "5", "endingtimestamp": "6", "includeBody": "False"})

    assert scope == Scope(from_ms=5, until_ms=6, includes_body=False)


def test_several_destinations_are_a_comma_list():
    """One reading serves a report over a few of many destinations."""
    scope = parse_scope({"destination": "orders, topic:news"})
    places = [ORDERS, Place("news", "topic", "billing"), Place("news", "queue"), Place(None, None)]

    assert [scope.wants("sent", place, 0) for place in places] == [True, True, False, False]


def test_events_are_chosen_by_name():
    """A dead-letter report reads dead letters only."""
    scope = parse_scope({"event": "expired,purged"})

    assert scope.wants("expired", ORDERS, 0)
    assert not scope.wants("sent", ORDERS, 0)


def test_the_view_of_messages_is_what_was_sent():
    """One row per message, for those who think in messages."""
    assert parse_scope({"view": "messages"}).events == {"sent"}


def test_a_selector_leaves_only_events_that_carry_a_head():
    """An acknowledgement has no properties: showing it would pretend that it matched."""
    scope = parse_scope({"selector": "a = 1"})

    assert scope.wants("sent", ORDERS, 0)
    assert scope.wants("forwarded", ORDERS, 0)
    assert not scope.wants("acknowledged", ORDERS, 0)


def test_offsets_are_numbers_or_the_ends_of_the_history():
    """Reading goes on where an earlier reading stopped."""
    assert parse_scope({"startingOffsets": "earliest", "endingOffsets": "latest"}) == Scope()
    scope = parse_scope({"startingOffsets": "7", "endingOffsets": "9"})
    assert (scope.first_offset, scope.until_offset) == (7, 9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"selektor": "a = 1"}, "did you mean 'selector'"),
        ({"qwertz": "1"}, "known are path"),
        ({"event": "sold"}, "known are sent"),
        ({"view": "tables"}, "events or messages"),
        ({"view": "messages", "event": "expired"}, "sent events only"),
        ({"includeBody": "maybe"}, "true or false"),
        ({"startingOffsets": "latest"}, "neither a number"),
        ({"from": "1", "startingTimestamp": "2"}, "mean the same"),
    ],
)
def test_an_option_that_is_not_understood_is_refused(options, message):
    """An option that is silently ignored reads, or replays, far too much."""
    with pytest.raises(HistoryError, match=message):
        parse_scope(options)
