"""The console's exports, imports, alterations, rules tables and its view of the past."""

import hashlib
import json
import os
import re
import resource
import shlex
import socket
from http.client import HTTPConnection
from types import SimpleNamespace
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from hms.boot.web import console_files
from hms.boot.web.console_history import History, HistoryPlace
from tests.acceptance.operations.test_console import Browser
from tests.support.secured import PASSWORD, document, secured_node

CONFIG = {
    "hms": {
        "queue": {"orders": {"redelivery_limit": 1}, "late": {}, "small": {"max_messages": 3}},
        "topic": {"news": {}},
    }
}
MARKUP = "<script>alert(1)</script>\"'>"
WAIT_S = 60
RULES = "WAIT(NO)\nREASON(REDELIVERY_LIMIT) ACTION(FWD) FWDQ('late')\nACTION(IGNORE)\n"


class Uploader(Browser):
    """Sends files as a browser does."""

    def parts(self, data, fields, boundary=b"xYx", name="orders.jsonl"):
        lines = [
            b'--%s\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
            % (boundary, key.encode(), value.encode())
            for key, value in fields.items()
        ]
        head = f'name="file"; filename="{name}"\r\nContent-Type: application/jsonl'
        lines.append(
            b"--%s\r\nContent-Disposition: form-data; %s\r\n\r\n%s\r\n--%s--\r\n"
            % (boundary, head.encode(), data, boundary)
        )
        return b"".join(lines)

    def send(self, body, **headers):
        """Status and text of the answer to an upload."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        try:
            given = {
                "Origin": f"http://127.0.0.1:{self.port}",
                "Content-Type": "multipart/form-data; boundary=xYx",
                "Cookie": self.cookie,
                **headers,
            }
            connection.request("POST", "/import", body, given)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def upload(self, data, into="late", name="orders.jsonl", **fields):
        given = {"token": self.token(), "into": into, **fields}
        return self.send(self.parts(data, given, name=name))

    def confirm(self, asked):
        """Say yes to what an upload was answered; what was said then."""
        key = re.search(r'name="upload" value="([^"]+)"', asked)[1]
        form = {"upload": key, "token": self.token()}
        status, text, headers = self.ask("POST", "/import", form)
        if status != 303:
            return status, re.search(r'role="alert">([^<]*)<', text)[1]
        said = re.search(r'class="said" role="status">([^<]*)<', self.get(headers["Location"]))
        return status, said[1]

    def export(self, **form):
        """Status, headers and bytes of a download."""
        body = urlencode({"token": self.token(), **form})
        given = {
            "Origin": f"http://127.0.0.1:{self.port}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Cookie": self.cookie,
        }
        connection = HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        try:
            connection.request("POST", "/export", body, given)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()


def fill(node, count=5, queue="orders"):
    with hms.connect(node.address) as connection, connection.session() as session:
        producer = session.producer(queue)
        return [
            producer.send(f"{MARKUP} {n}".encode(), {"N": n}, type=MARKUP).message_id
            for n in range(count)
        ]


def bodies(node, queue):
    with (
        hms.connect(node.address) as connection,
        connection.session() as session,
        session.browser(queue, oldest_first=True) as browser,
    ):
        return [bytes(one.body) for one in browser]


def sealed(lines):
    """An export of these lines, with a trailer that fits."""
    data = b"".join(line + b"\n" for line in lines)
    trailer = {"count": len(lines) - 1, "sha256": hashlib.sha256(data).hexdigest()}
    return data + json.dumps(trailer).encode() + b"\n"


HEADER = json.dumps({"format": "hms-messages", "version": 1, "store": ""}).encode()
LINE = json.dumps({"id": "00000000000a", "time_ms": 1, "kind": 1, "text": "x"}).encode()


@pytest.mark.parametrize("kind", ["jsonl", "pack"])
def test_an_export_is_a_file_that_both_the_command_and_the_console_import_once(
    node, serve, tmp_path, kind
):
    """What was downloaded at night is the same as the command's file."""
    ids = fill(node)
    browser = Uploader(serve())
    status, headers, data = browser.export(place="queue:orders", selector="N < 4", format=kind)
    assert (status, int(headers["Content-Length"])) == (200, len(data))
    assert headers["Content-Disposition"] == f'attachment; filename="queue-orders.{kind}"'
    file = tmp_path / "downloaded"
    file.write_bytes(data)
    words = ["message", "import", str(file), "--into", "late", "--run", "mine"]
    done = CliRunner().invoke(main, [*words, "--connect", node.address, "--json"])
    assert (done.exit_code, json.loads(done.stdout)["imported"]) == (0, 4)
    status, asked = browser.upload(data)
    assert (status, "4 messages, which go into late with new ids" in asked) == (200, True)
    assert len(bodies(node, "late")) == 4
    status, said = browser.confirm(asked)
    assert (status, said.startswith("Imported 4 of 4 messages into late")) == (303, True)
    assert bodies(node, "late") == [f"{MARKUP} {n}".encode() for n in range(4)] * 2
    assert browser.confirm(browser.upload(data)[1])[1].startswith("Imported 0 of 4 messages")
    chosen = browser.export(place="queue:orders", id=ids[4], action="export", format=kind)[2]
    assert (ids[4].encode() in chosen, ids[3].encode() in chosen) == (kind == "jsonl", False)
    assert (b'"count": 1' in chosen, len(chosen) < len(data)) == (True, True)
    assert browser.export(place="queue:orders", action="export")[0] == 400
    assert len(bodies(node, "late")) == 8


def test_an_import_keeps_ids_where_the_command_does(node, serve):
    """After a deletion by mistake."""
    ids = fill(node, 3)
    browser = Uploader(serve())
    data = browser.export(place="queue:orders")[2]
    browser.order("purge", name="orders")
    _, said = browser.confirm(browser.upload(data, into="queue:orders", keeps="yes")[1])
    assert said.startswith("Imported 3 of 3 messages into orders")
    with hms.connect(node.address) as connection:
        rows = connection.admin.messages("queue:orders").everything().list()
    assert [row["id"] for row in rows] == ids
    other = sealed([HEADER, LINE])
    status, text = browser.upload(other, keeps="yes")
    assert (status, "was not exported from the store of this node" in text) == (400, True)


def test_an_import_into_a_full_queue_says_how_far_it_came_and_goes_on(node, serve):
    """What there is room for, no message twice."""
    fill(node)
    browser = Uploader(serve())
    data = browser.export(place="queue:orders")[2]
    status, said = browser.confirm(browser.upload(data, into="small")[1])
    assert (status, "3 of 5 messages are imported" in said) == (400, True), said
    assert len(bodies(node, "small")) == 3
    with hms.connect(node.address) as connection:
        connection.administer("queue.alter", {"name": "small", "max_messages": 100})
    _, said = browser.confirm(browser.upload(data, into="small")[1])
    assert said.startswith("Imported 2 of 5 messages")
    assert sorted(bodies(node, "small")) == sorted(bodies(node, "orders"))


HOSTILE = {
    "truncated": (lambda data: data[: len(data) - 80], "truncated"),
    "cut in a line": (lambda data: data[: data.index(b"\n") + 30], "truncated"),
    "altered": (lambda data: data.replace(b'"N":[', b'"M":[', 1), "altered"),
    "a newer version": (
        lambda data: data.replace(b'"version": 1', b'"version": 2', 1),
        "line 1: it is of version 2; this one reads 1",
    ),
    "one bad line": (
        lambda _: sealed([HEADER, LINE, LINE.replace(b'"kind": 1', b'"kind": "x"')]),
        "line 3: Expected `int`, got `str` - at `$.kind`",
    ),
    "no JSON": (lambda _: sealed([HEADER, LINE, b'{"id": ']), "line 3: "),
    "a path out of the folder": (
        lambda _: sealed(
            [
                HEADER,
                json.dumps(
                    {
                        "id": "00000000000a",
                        "time_ms": 1,
                        "kind": 5,
                        "file": {"sha256": "../../etc/passwd", "bytes": 1, "name": "x"},
                    }
                ).encode(),
            ]
        ),
        "line 2: the SHA-256 of its file is none",
    ),
    "a file that is not there": (
        lambda _: sealed(
            [
                HEADER,
                json.dumps(
                    {
                        "id": "00000000000a",
                        "time_ms": 1,
                        "kind": 5,
                        "file": {"sha256": "0" * 64, "bytes": 1, "name": "x"},
                    }
                ).encode(),
            ]
        ),
        "line 2: its file " + "0" * 64,
    ),
    "something else": (lambda _: b"\x1f\x8b" + os.urandom(5000), "line 1: this is no export"),
    "nothing": (lambda _: b"", "The file is missing"),
    "deep": (lambda _: sealed([HEADER, b"[" * 100_000]), "line 2: "),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_faulty_file_imports_nothing_and_its_line_is_named(node, serve, what):
    """Whatever somebody has made of it."""
    fill(node)
    browser = Uploader(serve())
    change, told = HOSTILE[what]
    data = change(browser.export(place="queue:orders")[2])
    status, text = browser.upload(data, name='../../x"<script>.jsonl')
    assert status == 400
    said = re.search(r'role="alert">([^<]*)<', text)[1]
    assert told in said.replace("&#x27;", "'").replace("&quot;", '"')
    assert "/proc/" not in said
    assert bodies(node, "late") == []
    assert 'name="upload"' not in text


def test_an_upload_costs_no_more_memory_than_a_few_of_its_lines(node, serve):
    """A file that says little in many bytes, and one that says much in few."""
    browser = Uploader(serve())
    wide = b",".join(b'"%x":[null,1]' % n for n in range(500_000))
    bomb = LINE[:-1] + b', "properties": {' + wide + b"}}"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    token = browser.token()
    for data, told in (
        (sealed([HEADER, LINE, bomb]), "line 3: "),
        (sealed([HEADER, b" " * (console_files.LINE_BYTES_MAX + 1)]), "line 2: a line of more"),
        (sealed([HEADER, *[LINE] * 200_000]), ""),
    ):
        body = browser.parts(data, {"token": token, "into": "late"})
        status, text = browser.send(body)
        assert (status, told in text) == (400 if told else 200, True), text[-300:]
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown << 10 < 10 * len(body) + (200 << 20)


def test_an_upload_that_is_too_long_is_refused_by_a_page(node, serve, monkeypatch):
    """The browser has sent all of it before it reads an answer."""
    monkeypatch.setattr(console_files, "UPLOAD_BYTES_MAX", 1 << 20)
    browser = Uploader(serve())
    for size in (2 << 20, 12 << 20):
        status, text = browser.upload(b"x" * size)
        assert (status, "The file has more than 1 MiB." in text) == (400, True)


def test_an_upload_needs_the_session_its_token_and_this_site(node, serve):
    """As every order does; and the fields stand before the file."""
    fill(node)
    browser = Uploader(serve())
    data = browser.export(place="queue:orders")[2]
    good = {"token": browser.token(), "into": "late"}
    body = browser.parts(data, good)
    for headers in ({"Origin": "http://evil.example"}, {"Origin": ""}, {"Cookie": ""}):
        status, text = browser.send(body, **headers)
        assert (status, 'name="upload"' in text) == (400, False)
    assert browser.send(body, Host="evil.example")[0] == 421
    assert browser.send(browser.parts(data, {**good, "token": "x"}))[0] == 400
    assert browser.send(browser.parts(data, {"token": good["token"]}))[0] == 400
    late = browser.parts(data, {}).removesuffix(b"--xYx--\r\n") + browser.parts(b"", good)
    assert browser.send(late)[0] == 400
    for broken in (body[:-30], body[:300], b"", b"--xYx", body.replace(b"xYx", b"xYz")):
        assert browser.send(broken)[0] == 400
    other = Uploader(SimpleNamespace(port=browser.port))
    key = re.search(r'name="upload" value="([^"]+)"', browser.send(body)[1])[1]
    form = {"upload": key, "token": other.token()}
    assert other.ask("POST", "/import", form)[0] == 400
    assert browser.ask("POST", "/import", {"upload": key, "token": "x"})[0] == 400
    assert bodies(node, "late") == []
    assert browser.ask("POST", "/import", {**form, "token": browser.token()})[0] == 303
    assert browser.ask("POST", "/import", {**form, "token": browser.token()})[0] == 400


def test_files_at_once_are_bounded_and_the_pages_go_on(node, serve):
    """Two that stall keep no third one waiting, and no page."""
    browser = Uploader(serve())
    token = browser.token()
    head = (
        f"POST /import HTTP/1.1\r\nHost: 127.0.0.1:{browser.port}\r\nCookie: {browser.cookie}\r\n"
        f"Origin: http://127.0.0.1:{browser.port}\r\nContent-Length: 1000000\r\n"
        "Content-Type: multipart/form-data; boundary=xYx\r\n\r\n"
    ).encode()
    stalled = []
    for _ in range(console_files.AT_ONCE):
        made = socket.create_connection(("127.0.0.1", browser.port), timeout=WAIT_S)
        made.sendall(head + b"--xYx\r\n")
        stalled.append(made)
    try:
        status = 200
        while status == 200:
            status, _, data = browser.export(place="queue:orders")
        assert (status, b"Try again soon" in data) == (400, True)
        assert "Queues" in browser.get("/destinations")
    finally:
        for made in stalled:
            made.close()
    fill(node, 1)
    while (done := browser.export(place="queue:orders"))[0] != 200:
        continue
    assert done[2].count(b"\n") == 3
    sent = browser.parts(done[2], {"token": token, "into": "late"})
    while "Try again soon" in (taken := browser.send(sent))[1]:
        continue
    assert taken[0] == 200


def test_an_export_that_cannot_be_whole_is_a_page_that_says_so(node, serve, tmp_path, monkeypatch):
    """Too long, with a file, from nowhere, or onto a full disk: no half of it is downloaded."""
    fill(node)
    browser = Uploader(serve())
    monkeypatch.setattr(console_files, "EXPORT_BYTES_MAX", 500)
    status, headers, data = browser.export(place="queue:orders", selector="N > 0")
    assert (status, "Content-Disposition" in headers) == (400, False)
    command = "hms message export queue:orders --to messages.jsonl --selector &#x27;N &gt; 0&#x27;"
    assert command in data.decode()
    monkeypatch.undo()
    assert browser.export(place="queue:nothing")[0] == 400
    assert browser.export(place="queue:orders", selector="N >")[0] == 400
    assert browser.export(place="queue:orders", format="exe")[0] == 400
    file = tmp_path / "content"
    file.write_bytes(b"x" * 5000)
    with hms.connect(node.address) as connection, connection.session() as session:
        session.producer("orders").send(hms.Message.file(file))
    status, _, data = browser.export(place="queue:orders")
    assert (status, b"which a download does not bring" in data) == (400, True)
    monkeypatch.setattr(console_files.tempfile, "TemporaryFile", _full_disk)
    status, _, data = browser.export(place="queue:orders", selector="N = 1")
    assert (status, b"No space left" in data) == (400, True)
    monkeypatch.undo()
    assert browser.export(place="queue:orders", selector="N = 1")[0] == 200


def _full_disk(**_):
    return open("/dev/full", "wb")  # noqa: PTH123


def test_messages_are_altered_as_the_command_alters_them(node, serve):
    """One goes to the front, one has an end, one waits."""
    ids = fill(node, 3)
    browser = Uploader(serve())
    place = {"place": "queue:orders"}
    asked, said = browser.order("alter", **place, id=[ids[2]], priority="9")
    assert (ids[2] in asked, said.startswith("Altered 1 message:")) == (True, True)
    browser.order("alter", **place, id=[ids[0]], ttl="3600")
    browser.order("alter", **place, id=[ids[1]], due="2126-01-01T00:00")
    with hms.connect(node.address) as connection:
        rows = {r["id"]: r for r in connection.admin.messages("queue:orders").everything().list()}
    assert rows[ids[2]]["priority"] == 9
    assert rows[ids[0]]["expires_ms"] > rows[ids[0]]["time_ms"]
    assert rows[ids[1]]["state"] == "delayed"
    for form in ({}, {"priority": "10"}, {"priority": "x"}, {"ttl": "-1"}, {"due": "soon"}):
        given = {"action": "alter", **place, "id": ids[0], "sure": "yes", **form}
        status, text, _ = browser.ask("POST", "/order", {**given, "token": browser.token()})
        assert (status, "Nothing was done" in text) == (400, True), form


def test_messages_are_listed_by_selector_time_and_state(node, serve):
    """And a letter is counted by its reason, its origin and its hour."""
    ids = fill(node, 3)
    browser = Uploader(serve())
    browser.order("alter", place="queue:orders", id=[ids[1]], due="2126-01-01T00:00")

    def listed(query):
        page = browser.get(f"/messages?place=queue:orders&{query}")
        return [one in page for one in ids]

    assert listed("") == [True, True, True]
    assert listed("state=delayed") == [False, True, False]
    assert listed("state=waiting&selector=N+>+0") == [False, False, True]
    assert listed("from=2001-01-01&until=2002-01-01") == [False, False, False]
    assert listed("from=2001-01-01") == [True, True, True]
    for query in ("from=soon", "state=gone"):
        assert browser.ask("GET", f"/messages?place=queue:orders&{query}")[0] == 400
    dead(node, 2)
    page = browser.get("/letters")
    for by in ("reason", "origin", "hour"):
        assert f"Of those shown, by {by}" in page
    assert 'data-label="origin">queue:orders</td><td data-label="letters">2<' in page


def test_an_order_that_stops_half_way_says_what_it_did(node, serve):
    """Three of five have room."""
    ids = fill(node)
    browser = Uploader(serve())
    form = {"action": "move", "place": "queue:orders", "id": ids, "to": "small", "sure": "yes"}
    status, text, _ = browser.ask("POST", "/order", {**form, "token": browser.token()})
    assert (status, "Stopped before the end" in text) == (400, True)
    assert f"Moved to small: 3 messages: {' '.join(ids[:3])}; nothing further." in text
    assert (len(bodies(node, "small")), len(bodies(node, "orders"))) == (3, 2)


def dead(node, count):
    """So many dead letters of orders."""
    with hms.connect(node.address) as connection:
        session = connection.session(ack=hms.AckMode.CLIENT)
        consumer = session.consumer("orders", prefetch=1)
        for _ in range(count):
            assert consumer.receive(WAIT_S) is not None
            session.recover()


def test_a_rules_table_is_checked_and_tried_on_the_letters_that_wait(node, serve, tmp_path):
    """By the same matcher as the handler's; nothing is done to them."""
    ids = fill(node, 2)
    dead(node, 2)
    file = tmp_path / "night.rules"
    file.write_text(RULES)
    faulty = tmp_path / "faulty.rules"
    faulty.write_text("REASON(NOTHING) ACTION(FWD)\nACTON(RETRY)\n")
    rules = [
        SimpleNamespace(name="night", rules=file, queue=""),
        SimpleNamespace(name="faulty", rules=faulty, queue=""),
        SimpleNamespace(name="gone", rules=tmp_path / "gone", queue=""),
    ]
    browser = Uploader(serve(rules=rules))
    page = browser.get("/rules")
    assert ("No such file" in page, str(file) in page) == (True, True)
    page = browser.get("/rules?name=night")
    assert "2 rules, no fault, 1 warning." in page
    assert "REASON(REDELIVERY_LIMIT)" in page
    page = browser.get("/rules?name=faulty")
    assert 'data-label="line">2</td><td data-label="column">1<' in page
    assert "did you mean ACTION?" in page

    def tried(text, **more):
        form = {"rules": text.replace("\n", "\r\n"), "token": browser.token(), **more}
        return browser.ask("POST", "/rules", form)

    status, page, _ = tried(RULES)
    assert status == 200
    assert page.count("FWD to late") == 2
    assert all(one in page for one in ids)
    assert "0 of them no rule takes" in page
    selector = "EXTENSIONS(YES)\nSELECTOR('N = 1') ACTION(DISCARD)\n"
    page = tried(selector)[1]
    assert (page.count(">DISCARD<"), page.count("stays: no rule takes it")) == (2, 1)
    page = tried("ACTION(FWD) FWDQ(nowhere)\n")[1]
    assert "there is no queue NOWHERE now" in page
    page = tried(f"ACTION({MARKUP})\nSELECTOR('N = 1') ACTION(FWD)\n")[1]
    assert "no handler takes it" in page
    assert "<script" not in page
    assert tried(RULES, queue="nothing")[0] == 400
    assert tried("")[0] == 400
    form = {"rules": RULES, "token": "x"}
    assert browser.ask("POST", "/rules", form)[0] == 400
    assert len(bodies(node, "HMS.DLQ")) == 2


def test_the_past_of_a_message_and_of_a_place_is_shown(node, serve):
    """Out of the log, without Spark; by id, by place, by trace and by time."""
    ids = fill(node, 2)
    dead(node, 1)
    trace = "0af7651916cd43dd8448eb211c80319c"
    context = f"00-{trace}-b7ad6b7169203331-01"
    with hms.connect(node.address) as connection, connection.session() as session:
        traced = session.producer("late").send(b"x", {"traceparent": context}).message_id
    browser = Uploader(serve())
    page = browser.get(f"/history?id={ids[0]}")
    order = [page.index(f">{one}<") for one in ("sent", "delivered", "forwarded", "dead_lettered")]
    assert order == sorted(order)
    assert ids[1] not in page
    words = ["history", "trace", ids[0], "--path", str(node.store), "--json"]
    steps = json.loads(CliRunner().invoke(main, words).stdout)
    assert page.count('data-label="event"') == len(steps)
    page = browser.get("/history?destination=queue:orders")
    assert all(one in page for one in ids)
    assert traced not in page
    assert traced in browser.get(f"/history?trace={trace}")
    assert "knows nothing of it" in browser.get(f"/history?trace={'1' * 32}")
    assert "knows nothing of it" in browser.get(f"/history?id={ids[0]}&to=2000-01-01")
    for query in ("id=xyz", "id=1", "from=soon&id=00000000000a", "trace=1", "from=2000-01-01"):
        assert 'role="alert"' in browser.get(f"/history?{query}"), query


def test_a_search_that_takes_too_long_says_what_it_did_not_read(node, serving):
    """It is the newest part that was read, and the rest is for the command."""
    ids = fill(node, 2)
    ticks = iter(range(0, 10_000, 10))
    history = History(HistoryPlace(lambda: node.store, node.address), clock=lambda: next(ticks))
    browser = Uploader(serving(node.address, store=node.store, history=history))
    page = browser.get(f"/history?id={ids[0]}&from=2000-01-01")
    assert "Only the newest part" in page
    line = re.search(r"<pre>([^<]*)</pre>", page)[1]
    done = CliRunner().invoke(main, shlex.split(line)[1:])
    assert (done.exit_code, ids[0] in done.stdout) == (0, True)


def test_a_replay_is_shown_as_commands_that_run_and_the_runs_are_listed(node, serve):
    """What is typed was checked as the command checks it."""
    fill(node, 3)
    browser = Uploader(serve())
    page = browser.get("/replay?destination=queue:orders&into=late&selector=N+>+0&run=again")
    dry, real = re.findall(r"<pre>([^<]*)</pre>", page)
    assert dry.endswith("--dry-run")
    line = real.replace("&#x27;", "'").replace("&gt;", ">")
    done = CliRunner().invoke(main, shlex.split(line)[1:])
    assert (done.exit_code, len(bodies(node, "late"))) == (0, 2), done.output
    page = browser.get("/replay")
    assert ('data-label="run">again<' in page, ">complete<" in page) == (True, True)
    for query in (
        "destination=queue:orders",
        "destination=orders&into=late&selector=N+>",
        "destination=orders&into={nowhere}",
        "destination=orders&into=late&from=soon",
        "destination=orders&into=late&rate=fast",
        "destination=orders&into=late&run=a+b",
    ):
        page = browser.get(f"/replay?{query}")
        assert ('role="alert"' in page, "<pre>" in page) == (True, False), query
    page = browser.get("/replay?destination=orders&into=late%27;rm")
    assert shlex.quote("late';rm") in page.replace("&#x27;", "'").replace("&quot;", '"')


def test_users_see_and_do_what_the_node_lets_them(tmp_path, serving):
    """The files and the log are read by hms web, and shown to who may browse the place."""
    own = [f"{action} queue:HMS.REPLAY" for action in ("browse", "produce", "consume")]
    held = document(
        reader=["view node:*", "view queue:*", "browse queue:orders"],
        writer=["view node:*", "view queue:*", "produce queue:late", *own],
    )
    with secured_node(tmp_path, held, CONFIG) as node:
        ids = fill(node, 2)
        with hms.connect(node.address) as connection, connection.session() as session:
            other = session.producer("late").send(b"x").message_id
        server = serving(node.address, is_secured=True, store=node.store)
        reader, writer = Uploader(server), Uploader(server)
        for browser, user in ((reader, "reader"), (writer, "writer")):
            form = {"user": user, "password": PASSWORD}
            assert browser.ask("POST", "/login", form)[0] == 303
        page = reader.get(f"/history?id={ids[0]}")
        assert 'data-label="event">sent<' in page
        page = reader.get(f"/history?id={other}")
        assert ("data-label" in page, "that you may not browse is left out" in page) == (
            False,
            True,
        )
        assert "The runs are not shown" in reader.get("/replay")
        assert "<pre>" not in writer.get(f"/history?id={ids[0]}")
        data = reader.export(place="queue:orders")[2]
        assert data.count(b"\n") == 4
        assert reader.export(place="queue:late")[0] == 400
        assert writer.export(place="queue:orders")[0] == 400
        status, said = reader.confirm(reader.upload(data)[1])
        assert (status, "reader" in said) == (400, True)
        assert writer.confirm(writer.upload(data)[1])[0] == 303
        assert writer.confirm(writer.upload(data, into="small")[1])[0] == 400
        with hms.connect(node.address) as connection:
            assert connection.administer("queue.show", {"name": "late"})["waiting"] == 3
        for path in ("/history", "/rules", "/replay", "/import"):
            assert Uploader(server).ask("GET", path)[0] == 401
        form = {"place": "queue:orders", "token": "x"}
        assert Uploader(server).ask("POST", "/export", form)[0] == 400
