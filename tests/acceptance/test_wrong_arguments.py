"""Every wrong argument of the public client is an HmsError that names it, and harms nothing.

A wrong value that got as far as the wire would end the connection for all of its sessions, and one
that raised an error of Python's own would pass by `except hms.HmsError`.
"""

import asyncio

import pytest

import hms

CONFIG = '[hms.queue.orders]\n[hms.topic.news]\n[hms.topic.joined]\ntopic_string = "news"\n'
ORDERS, NEWS = hms.Queue("orders"), hms.Topic("news")
WAIT_S = 60

SURROGATE, LONG = "\ud800", "x" * 20_000
NOT_TEXTS = (5, -1, 2**70, float("nan"), b"", object(), ["x"])
NOT_NAMES = (*NOT_TEXTS, SURROGATE, LONG)
NOT_FLAGS = (None, "x", "", 0, 1, -1, float("nan"), b"", object())
NOT_SECONDS = ("x", float("nan"), float("inf"), 2**70, b"", object(), True, SURROGATE)
NOT_TIMES = (None, -1, *NOT_SECONDS)
NOT_COUNTS = (None, "x", -1, 2**70, 1.5, float("nan"), b"", object(), True)
NOT_DESTINATIONS = (None, "", *NOT_NAMES)
NOT_NEW = NOT_DESTINATIONS
NOT_MAPPINGS = ("x", 5, b"", object(), ["x"], 0)
NOT_BODIES = (None, 5, 1.5, object(), SURROGATE)
NOT_MOMENTS = ("x", float("nan"), float("inf"), 2**70, b"", object(), True)
NOT_FUNCTIONS = ("x", 5, b"", object())

CONNECT = {
    "address": (None, "x", "", 5, b"", object(), [], [None], ["x"], f"tcp://{SURROGATE}:1", LONG),
    "user": (None, *NOT_NAMES),
    "password": (None, *NOT_TEXTS, SURROGATE, "of nobody"),
    "token": (None, *NOT_TEXTS, SURROGATE),
    "allow_unsecured": NOT_FLAGS,
    "client_id": (None, *NOT_NAMES),
    "client_name": (None, *NOT_NAMES),
    "reconnect": NOT_FLAGS,
    "reconnect_interval_s": NOT_TIMES,
    "reconnect_period_s": NOT_TIMES,
    "request_timeout_s": NOT_TIMES,
    "connect_timeout_s": NOT_TIMES[1:],  # None: as long as the library says
    "address_order": (None, "", "x", *NOT_NAMES),
    "exception_listener": NOT_FUNCTIONS,
    "event_listener": NOT_FUNCTIONS,
}
SEND = {
    "body": NOT_BODIES,
    "properties": NOT_MAPPINGS,
    "persistent": ("x", "", 0, 1, b"", object()),
    "ttl_s": (-1, *NOT_SECONDS),
    "priority": ("x", -1, 10, 2**70, 1.5, float("nan"), b"", object(), True),
    "retain": ("x", "", 0, 1, b"", object()),
    "delay_s": (-1, *NOT_SECONDS),
    "deliver_at": NOT_MOMENTS,
    "compress": ("x", 5, -1, 1.5, b"", object(), SURROGATE, LONG),
    "correlation_id": NOT_TEXTS,
    "type": NOT_TEXTS,
    "reply_to": ("", *NOT_NAMES),
    "no_such_option": (1,),
}
MADE = {
    "name": (None, *NOT_NAMES),
    "selector": (*NOT_NAMES, "price >"),
    "prefetch": NOT_COUNTS,
    "listener": NOT_NAMES,
    "redelivery_delay_s": NOT_TIMES,
    "ordered": NOT_FLAGS,
}


def _send(session):
    return session.producer(ORDERS).send


def _send_async(session):
    return session.producer(ORDERS).send_async


def _schedule(session):
    return session.producer(ORDERS).schedule


def _start_global_order(session):
    return session.producer(ORDERS).start_global_order


CALLS = [
    ("session", lambda s: s.connection.session, {}, {
        "ack": (None, "x", -1, 7, 2**70, 1.5, b"", object(), True),
        "transacted": NOT_FLAGS, "xa": NOT_FLAGS, "asynchronous": NOT_FLAGS,
    }),
    ("watch", lambda s: s.connection.watch, {}, {"dest": NOT_DESTINATIONS}),
    ("schedules", lambda s: s.connection.schedules, {}, {
        "kind": (None, "x", *NOT_NAMES), "destination": (None, *NOT_NAMES), "limit": NOT_COUNTS,
    }),
    ("show schedule", lambda s: s.connection.schedule, {}, {"name": (None, *NOT_NAMES)}),
    ("cancel_schedule", lambda s: s.connection.cancel_schedule, {}, {"name": (None, *NOT_NAMES)}),
    ("administer", lambda s: s.connection.administer, {"verb": "queue.list"}, {
        "verb": (None, *NOT_NAMES),
        "arguments": ("x", 5, b"", object(), {1: 1}, {"x": []}, {"x": 2**70}, {"x": SURROGATE}),
    }),
    ("transaction", lambda s: s.connection.transaction, {}, {
        "timeout_s": NOT_TIMES, "wait": (None, "", "x", *NOT_NAMES),
    }),
    ("call", lambda s: s.connection.call, {"service": "NONE"}, {
        "service": (None, "", *NOT_NAMES),
        "data": (5, object(), SURROGATE, {"x": object()}),
        "timeout_s": NOT_SECONDS,
    }),
    ("producer", lambda s: s.producer, {"dest": ORDERS}, {
        "dest": NOT_DESTINATIONS, "persistent": NOT_FLAGS, "ttl_s": NOT_TIMES,
        "priority": (None, "x", -1, 10, 2**70, 1.5, b"", object(), True), "delay_s": NOT_TIMES,
        "name": (None, *NOT_NAMES), "retain": NOT_FLAGS,
        "compress": (None, "x", 5, b"", object(), SURROGATE, LONG),
    }),
    ("consumer", lambda s: s.consumer, {"dest": ORDERS}, {"dest": NOT_DESTINATIONS, **MADE}),
    ("subscriber", lambda s: s.subscriber, {"topic": NEWS}, {
        **MADE,
        "topic": (None, "", *NOT_TEXTS, SURROGATE, LONG),
        "durable": ("", *NOT_NAMES), "shared": NOT_FLAGS, "no_local": NOT_FLAGS,
        "scheme": (None, "", "x", *NOT_NAMES), "retained": (None, "", "x", *NOT_NAMES),
        "life_s": NOT_TIMES, "into": ("", *NOT_NAMES, NEWS), "correlation_id": (None, *NOT_NAMES),
    }),
    ("browser", lambda s: s.browser, {"queue": ORDERS}, {
        "queue": (*NOT_DESTINATIONS, NEWS), "selector": (*NOT_NAMES, "price >"),
        "oldest_first": NOT_FLAGS,
    }),
    ("topic", lambda s: s.topic, {}, {"string": (None, "", *NOT_TEXTS, SURROGATE, LONG)}),
    ("unsubscribe", lambda s: s.unsubscribe, {"topic": NEWS, "name": "n"}, {
        "topic": (None, "", *NOT_TEXTS, SURROGATE, LONG), "name": (None, "", *NOT_NAMES),
        "scheme": (None, "", "x", *NOT_NAMES),
    }),
    ("create_queue", lambda s: s.create_queue, {}, {"text": (*NOT_NEW, "new?x", "new?x=1")}),
    ("create_topic", lambda s: s.create_topic, {}, {"text": (*NOT_NEW, "new?x", "new?x=1")}),
    ("delete_temporary", lambda s: s.delete_temporary, {}, {"destination": NOT_DESTINATIONS}),
    ("lookup", lambda s: s.lookup, {}, {"export_name": NOT_DESTINATIONS}),
    ("ack", lambda s: s.ack, {}, {"wait": NOT_FLAGS}),
    ("send", _send, {"body": b"x"}, SEND),
    ("session.send", lambda s: s.send, {"dest": ORDERS, "body": b"x"}, {
        "dest": NOT_DESTINATIONS, **SEND,
    }),
    ("send_async", _send_async, {"body": b"x"}, SEND),
    ("send_many", lambda s: s.producer(ORDERS).send_many, {}, {
        "bodies": (None, "x", b"x", 5, object(), hms.Message(b"x"), [None], [5], [SURROGATE]),
    }),
    ("schedule", _schedule, {"name": "n", "body": b"x", "every_s": 3600}, {
        "name": (None, *NOT_NAMES), "body": NOT_BODIES, "properties": NOT_MAPPINGS,
        "persistent": ("x", 1, b""), "ttl_s": (-1, *NOT_SECONDS), "priority": ("x", -1, 10, b""),
        "every_s": (-1, *NOT_SECONDS), "cron": ("x", *NOT_NAMES), "time_zone": NOT_NAMES,
        "start": NOT_MOMENTS, "until": NOT_MOMENTS, "count": NOT_COUNTS,
        "missed": (None, "", "x", *NOT_NAMES), "replace": NOT_FLAGS, "no_such_option": (1,),
    }),
    ("global order", _start_global_order, {}, {"name": ("", *NOT_NAMES)}),
    ("receive", lambda s: s.consumer(NEWS).receive, {}, {"timeout_s": NOT_SECONDS}),
    ("receive_many", lambda s: s.consumer(NEWS).receive_many, {"count": 1}, {
        "count": NOT_COUNTS, "timeout_s": NOT_SECONDS,
    }),
    ("listen", lambda s: s.consumer(NEWS).listen, {}, {"listener": NOT_FUNCTIONS}),
]  # fmt: skip
MESSAGES = [
    ("Message", hms.Message, {}, {
        "body": (5, "x", 1.5, object()), "properties": NOT_MAPPINGS,
        "correlation_id": NOT_TEXTS, "type": NOT_TEXTS, "reply_to": ("", *NOT_NAMES),
    }),
    ("text", hms.Message.text, {}, {"body": (None, *NOT_TEXTS, SURROGATE)}),
    ("map", hms.Message.map, {}, {"body": (None, *NOT_TEXTS, "x", {"": 1}, {1: 1})}),
    ("stream", hms.Message.stream, {}, {"body": (None, 5, "x", b"", object(), [object()])}),
    ("object", hms.Message.object, {}, {"body": (object(), {"x": object()}, SURROGATE, 2**70)}),
    ("file", hms.Message.file, {"path": __file__}, {
        "path": (None, 5, b"", object(), "\0", SURROGATE, LONG, "no such file"),
        "url_only": NOT_FLAGS, "block_bytes": NOT_COUNTS,
    }),
    ("Queue", hms.Queue, {}, {"name": NOT_DESTINATIONS}),
    ("Topic", hms.Topic, {"name": "t"}, {"name": ("", *NOT_NAMES, None), "string": NOT_NAMES}),
]  # fmt: skip
MEANT = {
    "dest": ("destination",), "topic": ("destination",), "queue": ("destination",),
    "text": ("destination", "option", "unknown", "limit"), "string": ("destination",),
    "export_name": ("destination",), "reply_to": ("destination",), "bodies": ("body",),
    "data": ("body",), "compress": ("compression",), "cron": ("schedule",),
    "time_zone": ("schedule",), "every_s": ("schedule",), "into": ("destination", "queue"),
    "path": ("file",),
}  # fmt: skip
"""How else an error may speak of an argument."""


def _names_it(error, what):
    said = str(error).lower().replace("_", "").replace(" ", "")
    words = (what, *MEANT.get(what, ()))
    return any(word.replace("_", "").removesuffix("s") in said for word in words)


def _short(value):
    return ascii(value)[:40]


def _fault(what, value, outcome):
    """What is wrong with how a call ended, if anything is."""
    if not isinstance(outcome, hms.HmsError):
        return f"{what}={_short(value)}: {outcome!r}"
    if not _names_it(outcome, what):
        return f"{what}={_short(value)}: {outcome} does not name it"
    return None


def _outcome(call, *arguments, **named):
    try:
        made = call(*arguments, **named)
        if what_waits := getattr(made, "result", None):
            made = what_waits(WAIT_S)
    except Exception as fault:  # noqa: BLE001 - which one it is, is what is asked
        return fault
    return made


async def _awaited(call, **named):
    try:
        made = call(**named)
        if hasattr(made, "__await__"):
            made = await made
    except Exception as fault:  # noqa: BLE001 - which one it is, is what is asked
        return fault
    return made


@pytest.fixture(scope="module")
def conn(running):
    with hms.connect(running.address, request_timeout_s=WAIT_S) as connection:
        yield connection


def _session(connection, name):
    mode = hms.AckMode.CLIENT if name == "ack" else hms.AckMode.AUTO
    return connection.session(mode)


def _cases(table, given):
    return [
        (what, value, given | {what: value}) for what, values in table.items() for value in values
    ]


@pytest.mark.parametrize(("name", "of", "given", "table"), CALLS, ids=[row[0] for row in CALLS])
def test_a_wrong_argument_is_named_and_the_connection_lives(conn, name, of, given, table):
    """Blocking; the session itself goes on as well."""
    with _session(conn, name) as session:
        call = of(session)

        faults = [
            fault
            for what, value, named in _cases(table, given)
            if (fault := _fault(what, value, _outcome(call, **named)))
        ]

        assert faults == []
        receipt = session.producer(ORDERS).send(b"it lives")
    assert (bool(receipt.message_id), conn.is_connected) == (True, True)


@pytest.mark.parametrize(("name", "of", "given", "table"), CALLS, ids=[row[0] for row in CALLS])
def test_the_same_holds_in_asyncio(running, name, of, given, table):
    """It is another shell around the same steps."""

    async def run():
        async with (
            hms.aio.connect(running.address, request_timeout_s=WAIT_S) as connection,
            _session(connection, name) as session,
        ):
            call = of(session)
            outcomes = [
                (what, value, await _awaited(call, **named))
                for what, value, named in _cases(table, given)
            ]
            receipt = await session.producer(ORDERS).send(b"it lives")
            return outcomes, receipt.message_id

    outcomes, message_id = asyncio.run(run())

    assert [fault for one in outcomes if (fault := _fault(*one))] == []
    assert message_id


@pytest.mark.parametrize("what", CONNECT)
@pytest.mark.parametrize("connect", [hms.connect, hms.aio.connect, hms.context, hms.aio.context])
def test_a_wrong_option_of_a_connection_is_refused_before_it_connects(connect, what):
    """There is nothing to be connected to here."""
    faults = []
    for value in CONNECT[what]:
        given = {"address": "tcp://127.0.0.1:1"} | {what: value}
        faults.append(_fault(what, value, _outcome(connect, **given)))

    assert [fault for fault in faults if fault] == []


@pytest.mark.parametrize(
    ("name", "make", "given", "table"), MESSAGES, ids=[row[0] for row in MESSAGES]
)
def test_a_message_that_cannot_be_is_refused_when_it_is_made(name, make, given, table):
    """Later it would fail in a batch, or at its receiver."""
    faults = [
        fault
        for what, value, named in _cases(table, given)
        if (fault := _fault(what, value, _outcome(make, **named)))
    ]

    assert (name, faults) == (name, [])


def test_the_value_of_a_password_is_in_no_error():
    """Errors are logged."""
    for secret in ("hunter2", b"hunter2"):
        refused = _outcome(hms.connect, "tcp://127.0.0.1:1", user="app", password=secret)
        assert isinstance(refused, hms.HmsError)
        assert "hunter2" not in f"{refused!r}{refused}"
