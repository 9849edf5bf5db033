"""Sending, receiving and browsing from the shell, with a queue in memory in the node's place."""

import json
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

import hms
from field_buffer.types import Int
from hms.boot.cli import main
from hms.boot.cli.target import Target
from hms.errors.catalogue import ConnectionRefused, DestinationKindMismatch, RequestTimeout
from hms.wire.packed_messages import DeliveredRow, Head, encode_head
from hms.wire.structures import ResultHead
from tests.unit.boot.test_web_server import ANSWER


class Node:
    """A connection, a session, a producer, a consumer and a browser in one."""

    def __init__(self):
        self.waiting = []
        self.taken = []
        self.asked = []
        self.answers = {}
        self.prefetch = None

    @property
    def requests(self):
        return self

    def begin_within(self, _seconds):
        """It answers at once."""

    @contextmanager
    def session(self, **_):
        yield self

    def producer(self, destination, **options):
        self.destination, self.options = destination, options
        return self

    def send_many(self, messages):
        sent = list(messages)
        for number, message in enumerate(sent, 1):
            message.mark_sent(self.destination, number, 1000, is_persistent=True)
        self.waiting += sent
        return sent

    def consumer(self, destination, **options):
        self.destination, self.options = destination, options
        return self

    subscriber = consumer

    def receive(self, timeout_s):  # noqa: ARG002 - the signature of a consumer
        if not self.waiting:
            return None
        message = self.waiting.pop(0)
        _row, head, body = message.encode()
        number = int(message.message_id, 16)
        delivered = DeliveredRow(number, 1000, 0, 0, len(head), len(body), 4, message.kind, 1)
        return hms.Message.received(delivered, head, body, self.destination, self.taken.append)

    @contextmanager
    def browser(self, *_, **__):
        yield reversed(self.waiting)

    def administer(self, verb, arguments):
        self.asked.append((verb, arguments))
        return self.answers[verb]


@pytest.fixture
def node(monkeypatch):
    """The node that every command of the test speaks to."""
    node = Node()

    @contextmanager
    def connection(_target, **_):
        yield node

    monkeypatch.setattr(Target, "connection", connection)
    return node


@pytest.fixture
def run():
    """Run a command line against the node."""

    def command(*words, **settings):
        return CliRunner().invoke(main, [*words, "--connect", "tcp://127.0.0.1:1"], **settings)

    return command


@pytest.mark.parametrize("source", ["argument", "file", "stdin"])
def test_a_body_comes_from_an_argument_a_file_or_standard_input(node, run, tmp_path, source):
    """Bytes go in as they are."""
    (tmp_path / "body").write_bytes(b"\0hello")
    words, given = {
        "argument": (["hello"], None),
        "file": (["--file", str(tmp_path / "body")], None),
        "stdin": (["--file", "-"], b"\0hello"),
    }[source]

    said = run("send", "ORDERS", *words, input=given)

    assert said.exit_code == 0, said.output
    assert node.waiting[0].body == (b"hello" if source == "argument" else b"\0hello")
    assert said.output == "000000000001\n"


def test_properties_have_the_type_that_was_typed(node, run):
    """A selector compares numbers with numbers."""
    words = ["Type=News", "Month:int=5", "Big:long=5", "Ratio:double=0.5", "Fresh:bool=true"]
    options = [word for value in words for word in ("--property", value)]

    assert run("send", "ORDERS", "x", *options).exit_code == 0

    properties = node.waiting[0].properties
    assert dict(properties) == {"Type": "News", "Month": 5, "Big": 5, "Ratio": 0.5, "Fresh": True}
    assert properties["Month"] == Int(5)


@pytest.mark.parametrize(
    "word", ["Month", "=5", "Month:int=x", "Month:money=5", "Fresh:bool=maybe"]
)
def test_a_wrong_property_is_a_wrong_use(node, run, word):
    """Nothing is sent with half of what was meant."""
    assert run("send", "ORDERS", "x", "--property", word).exit_code == 2
    assert node.waiting == []


@pytest.mark.parametrize(
    ("words", "body"),
    [
        (['{"cups": 2, "hot": true}', "--map"], {"cups": 2, "hot": True}),
        (['[1, 2.5, "x"]', "--stream"], [1, 2.5, "x"]),
        (['{"deep": [1, {"x": null}]}', "--object"], {"deep": [1, {"x": None}]}),
        (["--empty"], None),
        (["two", "--text"], "two"),
        (["two"], b"two"),
    ],
)
def test_a_message_of_each_kind_is_sent_with_its_header(node, run, words, body):
    """A test message is as good as an application's."""
    header = ["--reply-to", "topic:answers", "--type", "drinks", "--correlation-id", "7"]

    said = run("send", "ORDERS", *words, *header)

    assert said.exit_code == 0, said.output
    (message,) = node.waiting
    assert message.body == body
    assert (str(message.reply_to), message.type) == ("topic:answers", "drinks")
    assert message.correlation_id == "7"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["{", "--map"], 1, "no JSON"),
        (["[1]", "--map"], 1, "JSON object"),
        (["{}", "--stream"], 1, "JSON array"),
        (["x", "--empty"], 2, "--empty"),
    ],
)
def test_a_body_that_is_not_what_was_said_is_not_sent(node, run, words, code, said):
    """Half a message is worse than none."""
    done = run("send", "ORDERS", *words)

    assert (done.exit_code, said in done.output) == (code, True)
    assert node.waiting == []


def test_options_of_a_send_reach_the_producer(node, run):
    """Each of them changes what the node does with the message."""
    words = ["--priority", "9", "--ttl", "1.5", "--non-persistent", "--count", "3", "--text"]
    words += ["--delay", "60"]

    said = run("send", "topic:NEWS", "x", *words, "--json")

    assert node.destination == hms.Topic("NEWS")
    wanted = {"persistent": False, "ttl_s": 1.5, "priority": 9, "retain": False, "delay_s": 60}
    assert node.options == wanted
    assert [message.body for message in node.waiting] == ["x", "x", "x"]
    assert len(json.loads(said.output)["message_ids"]) == 3


def test_received_messages_are_printed_and_acknowledged(node, run):
    """What was not printed must stay with the node."""
    run("send", "ORDERS", "x", "--count", "3")

    said = run("receive", "ORDERS", "--count", "2")

    assert said.output == "x\nx\n"
    assert len(node.taken) == 2
    assert node.options["prefetch"] == 2


def test_a_received_message_is_shown_whole_as_json(node, run):
    """Programs read one object a line."""
    run("send", "ORDERS", "x", "--property", "Month:int=5", "--type", "T")

    said = json.loads(run("receive", "ORDERS", "--json").output)

    assert said["body"] == "x"
    assert said["properties"] == {"Month": 5}
    assert (said["message_id"], said["destination"], said["type"]) == (
        "000000000001",
        "queue:ORDERS",
        "T",
    )


def test_a_body_that_is_no_text_is_shown_as_base64(node, run):
    """JSON has no bytes."""
    run("send", "ORDERS", "--file", "-", input=b"\xff\x00")

    assert json.loads(run("receive", "ORDERS", "--json").output)["body_base64"] == "/wA="


def test_nothing_to_receive_is_told_with_exit_code_one(node, run):
    """A script waits for a message with this."""
    said = run("receive", "ORDERS", "--timeout", "0.5")

    assert said.exit_code == 1
    assert "no message from ORDERS within 0.5 s" in said.stderr


def test_browsing_takes_nothing(node, run):
    """It is for looking."""
    run("send", "ORDERS", "x", "--count", "3")

    said = run("browse", "ORDERS", "--count", "2")

    assert said.output == "000000000003  x\n000000000002  x\n"
    assert (len(node.waiting), node.taken) == (3, [])


def test_a_dead_letter_is_browsed_with_its_reason(node, run):
    """That is what its reader asks first."""
    head = encode_head(Head({}, b"", "", "", "", {"$DeadReason": "REJECTED"}))
    row = DeliveredRow(7, 1000, 0, 0, len(head), 3, 4, hms.Message(b"").kind, 1)
    node.waiting.append(hms.Message.received(row, head, b"tea", hms.Queue("HMS.DLQ")))

    assert run("browse", "HMS.DLQ").output == "000000000007  (REJECTED) tea\n"


def test_the_status_tells_of_resource_managers_in_words(node, run):
    """Not as "since 1795650430.539", with an empty word behind each name."""
    west = {"name": "west", "state": "down", "reason": "no route", "since": 60.0, "committed": 0}
    node.answers["status"] = {"recovery": {"resources": [west], "transactions": []}}

    said = run("status").output

    assert said == "recovery  west down, reason no route, since 1970-01-01T00:01:00.000+00:00\n"


def test_lists_are_tables_or_json(node, run):
    """For eyes and for programs."""
    rows = [{"name": "A", "waiting": 3}, {"name": "LONGER", "waiting": 12}]
    node.answers["queue.list"] = rows

    assert run("queue", "list").output == "name    waiting\nA       3\nLONGER  12\n"
    assert json.loads(run("queue", "list", "--json").output) == rows
    node.answers["queue.list"] = []
    assert run("queue", "list").output == "there is no queue\n"


def test_data_of_a_call_that_is_no_text_is_refused(run):
    """A service gets text from the shell; it was a traceback of the decoder."""
    said = run("call", "SERVICE", "-", input=b"\xff")

    assert (said.exit_code, "no UTF-8 text" in said.output) == (1, True)


@pytest.mark.parametrize(("words", "is_told"), [((), True), (("--text",), False)])
def test_a_json_object_without_map_is_said_to_be_a_text(node, run, words, is_told):
    """README's own service answered with a TypeError about string indices, and no way out."""
    head = ResultHead(call=1, rval=1)
    node.run_service = lambda *_: (head, b"")

    said = run("call", "COFFEE", '{"cups": 2}', *words)

    assert said.exit_code == 1
    assert ("give --map" in said.stderr) is is_told


@pytest.mark.parametrize(
    ("error", "said", "unsaid"),
    [
        (DestinationKindMismatch(destination="news", kind="topic", wanted="queue"),
         "hms publish, hms subscribe", "hms.Topic"),
        (ConnectionRefused(address="tcp://127.0.0.1:1", reason="nothing listens there"),
         "--connect", "connect_timeout_s"),
        (RequestTimeout(what="a question", timeout_s=1), "--timeout", "request_timeout_s"),
    ],
)  # fmt: skip
def test_an_error_at_the_shell_names_what_can_be_typed_there(node, run, error, said, unsaid):
    """It advised classes and arguments of Python to a person who typed a command."""

    def refuse(*_):
        raise error

    node.administer = refuse

    told = run("queue", "list")

    assert (told.exit_code, said in told.stderr, unsaid in told.stderr) == (1, True, False)
    assert unsaid in str(error)


def test_what_peers_named_cannot_command_the_terminal(node, run):
    """S09: names are chosen by clients, and a terminal obeys escape sequences."""
    node.answers["session.list"] = [{"client_id": "\x1b[2Jx\n"}]

    assert "\x1b" not in run("session", "list").output


def test_one_look_of_top_is_one_view(node, run, monkeypatch):
    """`--count 1` said that rates need two looks, and showed nothing."""
    node.answers["metrics.show"] = json.loads(ANSWER) | {"max_memory_bytes": 1}
    monkeypatch.setattr("hms.boot.cli.top.time.sleep", lambda _: None)

    views = run("top", "--count", "1", "--json").output.splitlines()

    assert [json.loads(view)["sent_per_s"] for view in views] == [0.0]


def test_purging_asks_first(node, run):
    """It is the one command that removes messages."""
    node.answers["queue.purge"] = 7
    node.answers["queue.show"] = {"waiting": 7}

    refused = run("queue", "purge", "ORDERS", input="n\n")

    assert refused.exit_code == 1
    assert "Remove 7 messages that wait in ORDERS?" in refused.output
    assert [verb for verb, _ in node.asked] == ["queue.show"]
    node.asked.clear()
    said = run("queue", "purge", "ORDERS", "--yes")
    assert said.output == "ORDERS: 7 messages removed\n"
    assert node.asked == [("queue.purge", {"name": "ORDERS"})]
