"""One run of a handler: what it is given, and that a result comes of whatever it does."""

import logging

import pytest
from msgspec.structs import astuple

import hms
from field_buffer import FieldBuffer
from hms.client.core.service_data import decode_data, encode_data
from hms.errors.catalogue import DestinationNotFound, ServiceCallFailed, ServiceNotFound
from hms.wire.packed_messages import DELIVERED_ROW, Head, encode_head
from hms.wire.structures import InvokeHead, encode_with_body
from tpmon.constants import TPEXIT, TPFAIL, TPSUCCESS
from tpmon.invocation import invoke
from tpmon.service_functions import Registry, tpreturn

LIMIT = 1 << 20


def run(handler, data=None, *, limit=LIMIT, head=None):
    """The result of a handler for data, or for an INVOKE as the node sends it."""
    handlers = Registry()
    handlers.add("SVC", handler)
    kind, encoded = encode_data(data)
    return astuple(invoke(handlers, head or InvokeHead("SVC", 5, 0, kind), encoded, limit))


def invoke_message(place, name, row, kind=0, head=b""):
    """The INVOKE of a listener."""
    return InvokeHead(
        "SVC",
        1,
        0,
        kind,
        is_message=True,
        destination_kind=place,
        destination=name,
        delivered=row,
        head=head,
    )


def raising(fault):
    def handler(_):
        raise fault

    return handler


@pytest.mark.parametrize(
    "data", [b"\x00", b"", "grüß", "", {"a": [1, None]}, {}, None, FieldBuffer({"A": 1})]
)
def test_data_of_each_kind_goes_in_and_comes_back(data):
    """What the caller sent is what the handler gets; what it returns is what the caller gets."""
    seen = []

    head, answer, _ = run(lambda request: seen.append(request) or request.data, data)

    assert seen[0].data == data
    assert seen[0].message is None
    assert (head.call, head.rval, head.error_number) == (5, TPSUCCESS, 0)
    assert decode_data(head.kind, answer) == data


def test_a_request_tells_its_service_and_its_deadline():
    """A handler can give up what nobody waits for any more."""
    seen = []
    head = InvokeHead("SVC", 1, 1_700_000_000_500, 6)

    run(seen.append, head=head)
    run(seen.append)

    assert [(r.name, r.deadline) for r in seen] == [("SVC", 1_700_000_000.5), ("SVC", None)]


def test_a_listener_gets_the_message():
    """It has its properties and header like one that was received."""
    row = DELIVERED_ROW.pack(42, 1000, 0, 2, 0, 0, 7, 1, 1, 0)
    sent = encode_head(Head(properties={"Type": "News"}))
    head = invoke_message("topic", "news", row, 1, sent)
    handlers, seen = Registry(), []
    handlers.add("SVC", seen.append)

    result = invoke(handlers, head, b"hello", LIMIT).head

    (request,) = seen
    assert result.rval == TPSUCCESS
    assert request.data == request.message.body == "hello"
    assert request.message.properties["Type"] == "News"
    assert request.message.destination == hms.Topic("news")
    assert (request.message.delivery_count, request.message.priority) == (2, 7)


def test_what_a_listener_returns_need_not_be_data():
    """Its answer goes nowhere: returning a number must not give the message back."""
    row = DELIVERED_ROW.pack(42, 1000, 0, 1, 0, 0, 4, 0, 1, 0)
    head = invoke_message("queue", "orders", row)

    assert run(lambda _: 17, head=head)[0].rval == TPSUCCESS


def test_a_message_is_answered_by_its_body():
    """API: a service may return an hms.Message."""
    head, answer, _ = run(lambda _: hms.Message.map({"a": 1}))

    assert decode_data(head.kind, answer) == {"a": 1}


def test_tpreturn_tells_rval_rcode_and_data():
    """TPFAIL is the application's own failure and may carry data."""
    head, answer, _ = run(lambda _: tpreturn(TPFAIL, -3, "sold out"))

    assert (head.call, head.rval, head.rcode, head.kind) == (5, TPFAIL, -3, 1)
    assert answer == b"sold out"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (ValueError("no tea"), "ValueError: no tea"),
        (KeyError("item"), "KeyError: 'item'"),
        (RuntimeError(), "RuntimeError"),
        (DestinationNotFound(destination="x", kind="queue"), "DestinationNotFound: HMS-"),
        (ValueError("x" * 100_000), "ValueError: xxx"),
    ],
    ids=["text", "key", "nothing", "our own", "very long"],
)
def test_an_exception_becomes_a_result_that_can_be_sent(fault, said, caplog):
    """Type and text cross the wire, the traceback stays in the log; no text is too odd for it."""
    head, answer, _ = run(raising(fault))

    assert (head.rval, head.error_number, answer) == (TPFAIL, ServiceCallFailed.number, b"")
    assert head.error_fields["detail"].startswith(said)
    assert len(encode_with_body(head, answer)) < 2000
    assert "Traceback" in caplog.text


def test_a_text_that_is_no_unicode_can_be_sent_too(caplog):
    """Half of a character is a string in Python, and nothing that can be encoded."""
    caplog.set_level(logging.CRITICAL + 1)  # a report of the test could not be encoded either
    head, answer, _ = run(raising(ValueError("\ud800")))

    assert head.error_fields["detail"] == "ValueError: \\ud800"
    assert len(encode_with_body(head, answer)) < 2000


def test_an_exception_that_cannot_say_what_it_is_becomes_a_result_too(caplog):
    """Its __str__ is the application's and may fail."""

    class OddError(Exception):
        def __str__(self):
            raise ValueError

    assert run(raising(OddError()))[0].error_fields["detail"] == "OddError"


def test_an_answer_that_cannot_be_encoded_is_a_failure(caplog):
    """The caller must not wait for an answer that can never be sent."""
    for returned in (17, object(), {"a": object()}, "\ud800"):
        head, _, _ = run(lambda _, returned=returned: returned)
        assert (head.rval, head.error_number) == (TPFAIL, ServiceCallFailed.number)


def test_an_answer_that_the_node_would_not_take_is_a_failure():
    """Sent all the same it would cost the server its connection."""
    head, answer, _ = run(lambda _: b"12345", limit=4)

    assert (head.rval, answer) == (TPFAIL, b"")
    assert "5 bytes" in head.error_fields["detail"]


def test_data_that_cannot_be_read_is_a_failure_of_the_call(caplog):
    """A caller in another language may send what is no map; the server goes on."""
    handlers = Registry()
    handlers.add("SVC", lambda request: request.data)

    head = invoke(handlers, InvokeHead("SVC", 1, 0, 2), b"\xc1", LIMIT).head

    assert head.rval == TPFAIL


def test_a_service_that_was_taken_back_meanwhile_is_a_failure_of_the_call(caplog):
    """The node had sent the call before it knew."""
    head = invoke(Registry(), InvokeHead("GONE", 1, 0), b"", LIMIT).head

    assert ServiceNotFound.__name__ in head.error_fields["detail"]


@pytest.mark.parametrize(
    "handler", [raising(SystemExit(3)), raising(KeyboardInterrupt()), lambda _: tpreturn(TPEXIT)]
)
def test_a_handler_that_ends_the_server_answers_first(handler):
    """Its caller learns of the failure from it, not by the loss of the connection."""
    head, _, is_last = run(handler)

    assert is_last
    assert head.rval == TPFAIL
