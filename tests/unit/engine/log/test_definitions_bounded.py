"""What every segment begins with has its bound: else the log could not go on in a new one."""

import msgspec
import pytest

from hms.engine.engine import ConsumerRequest
from hms.errors.catalogue import ConsumerLimit
from hms.records import Definition, Placement, Sent, decode_sent, defined, sent
from hms.records.sent import PLACEMENT_BYTES_MAX
from tests.support.engine_rig import EngineRig

WIDE = "\U0001f600" * 255
LIMIT = 60_000


def _subscribe(rig, handle, name, client_id="", **options):
    """A durable subscription of a client of its own, which closes its consumer."""
    number = 100 + handle
    rig.engine.open_connection(number, number, client_id and f"{handle:03}{client_id[3:]}", "")
    rig.engine.open_session(number, 1, 2, "")
    request = ConsumerRequest(1, 1, "topic", "news", 1, durable=name, **options)
    try:
        rig.run(lambda fx: rig.engine.open_consumer(number, request, 1, rig.now_ms, fx))
        rig.run(lambda fx: rig.engine.close_consumer(number, 1, rig.now_ms, fx))
    finally:
        rig.run(lambda fx: rig.engine.close_connection(number, rig.now_ms, fx))


def _until_refused(rig, **options):
    for n in range(1, 900):
        try:
            _subscribe(rig, n, f"d{n}", **options)
        except ConsumerLimit:
            return n - 1
    raise AssertionError("they are never refused")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"client_id": WIDE},
        {"selector": "Name = '" + "x" * 2000 + "'"},
        {"correlation_id": WIDE, "queue": "orders"},
        {"life_ms": 1 << 40, "retained": "NEW", "is_no_local": True, "is_shared": True},
    ],
    ids=str,
)
def test_all_durable_subscriptions_fit_into_a_segment_and_into_a_record(options):
    """The id of the client was not counted: a node stopped, and could not be booted any more."""
    rig = EngineRig(definitions_bytes_max=LIMIT)
    count = _until_refused(rig, **options)

    size = sum(map(len, rig.engine.dictionary().parts)) + count * PLACEMENT_BYTES_MAX
    assert count > 10
    assert size <= LIMIT + 500  # and the numbers that a dictionary has besides
    rig.start()
    assert sum(map(len, rig.engine.dictionary().parts)) <= LIMIT + 500
    with pytest.raises(ConsumerLimit):
        _subscribe(rig, 950, "one more", **options)


def test_a_subscription_that_cannot_be_replaced_stays():
    """A longer selector for which there is no room must not cost what waits."""
    rig = EngineRig(definitions_bytes_max=LIMIT)
    count = _until_refused(rig)
    rig.send(producer=2)
    with pytest.raises(ConsumerLimit):
        _subscribe(rig, 1, "d1", selector="Name = '" + "x" * 8_000 + "'")

    subscriptions = rig.engine.state.topics["news"].subscriptions
    assert len(subscriptions) == count
    assert {s.line.waiting_count for s in subscriptions} == {1}


@pytest.mark.parametrize("kind", ["queue", "topic", "subscription"])
def test_a_definition_is_counted_as_large_as_it_may_become(kind):
    """Its number is given later, and a pause is a word more."""
    for text in ("", "x", WIDE):
        asked = Definition(0, kind, text, client_id=text, topic_string=text, selector=text)
        given = msgspec.structs.replace(asked, number=(1 << 32) - 1, paused="CONSUMPTION")
        (encoded,) = defined(given).parts
        place = PLACEMENT_BYTES_MAX if kind == "subscription" else 0
        assert len(encoded) + place <= asked.size_bytes


@pytest.mark.parametrize("count", [0, 1, 65_535, 65_536, 200_000])
def test_a_message_goes_to_more_than_65535_durable_subscriptions(count):
    """The number of places had sixteen bits: the publication stopped the node."""
    placements = [Placement(n, b"") for n in range(1, count + 1)]
    head = Sent(
        *(1, 2, 3, 4, 5, 6, 1), is_forwarded=False, placements=placements, pack=memoryview(b"pack")
    )
    found = decode_sent(b"".join(sent(head).parts))

    assert found.placements == placements
    assert bytes(found.pack) == b"pack"
