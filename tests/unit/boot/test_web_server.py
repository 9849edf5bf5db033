"""The HTTP server: what strangers send, keep open or do not read has an end."""

import contextlib
import gzip
import json
import socket
import threading
from http.client import HTTPConnection
from types import SimpleNamespace

import msgspec
import pytest

from hms.boot.monitoring.families import SERIES_OF_A_PLACE
from hms.boot.monitoring.health import Health
from hms.boot.web import http_server
from hms.boot.web.http_server import Answer, WebServer
from hms.boot.web.node_link import NodeLink
from hms.boot.web.site import Site
from hms.errors.catalogue import NotConnected
from hms.wire.operations import ShowMetrics
from tests.support.waiting import wait_until


@pytest.fixture
def serve():
    """Start a server with a handler; ends with the test."""
    with contextlib.ExitStack() as open_ones:

        def start(handle, **options):
            options = {"deadline_s": 60} | options
            server = open_ones.enter_context(WebServer("127.0.0.1", 0, handle, **options))
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
            thread.start()
            open_ones.callback(thread.join)
            open_ones.callback(server.shutdown)
            return server

        yield start


@pytest.fixture
def now(monkeypatch):
    """A clock by which connections are cut; it stands still."""
    now = [100.0]
    monkeypatch.setattr(http_server, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


@pytest.fixture
def connect():
    """Raw connections, closed with the test."""
    with contextlib.ExitStack() as open_ones:

        def start(server, data=b""):
            made = socket.create_connection(("127.0.0.1", server.port), timeout=60)
            open_ones.enter_context(made)
            made.sendall(data)
            return made

        yield start


def _get(server, path, method="GET", **headers):
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())
    finally:
        connection.close()


def _echo(request):
    return Answer(f"{request.method} {request.path} {request.argument('a')}".encode())


def test_an_answer_has_the_headers_that_keep_a_page_harmless(serve):
    """Also the one to a request that is wrong."""
    server = serve(_echo)
    status, body, headers = _get(server, "/x?a=1")
    assert (status, body) == (200, b"GET /x 1")
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    status, _, headers = _get(server, "/x", method="BREW")
    assert (status, headers["X-Content-Type-Options"]) == (501, "nosniff")
    assert _get(server, f"/{'x' * 5000}")[0] == 414


def test_a_name_that_leads_here_from_elsewhere_is_refused(serve):
    """A page of another site may have its own name resolve to this machine."""
    server = serve(_echo, hosts=frozenset(("hms.example",)))
    assert _get(server, "/", Host="evil.example")[0] == 421
    assert _get(server, "/", Host="hms.example:80")[0] == 200


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_a_request_that_does_not_come_is_cut(serve, connect, sent):
    """One byte a second would else keep a thread for hours."""
    server = serve(_echo, deadline_s=0.3)
    assert connect(server, sent).recv(1000) == b""
    wait_until(lambda: not server._open)


def test_a_reader_that_does_not_read_is_cut(serve, connect):
    """Its answer is dropped with it."""
    server = serve(lambda _: Answer(b"x" * (64 << 20)))
    reader = connect(server, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert reader.recv(1)  # the answer has begun
    (writing,) = server._open
    server._open[writing] = 0.0  # its time is over
    wait_until(lambda: not server._open)
    assert server.cut == 1
    reader.close()
    assert _get(serve(_echo), "/")[0] == 200


def test_connections_beyond_the_most_are_closed_and_the_others_served(serve, connect):
    """Ten thousand idle tabs are a number, not an outage."""
    server = serve(_echo, connections_max=2)
    idle = [connect(server), connect(server)]
    wait_until(lambda: len(server._open) == 2)
    with contextlib.suppress(ConnectionResetError):
        assert connect(server).recv(10) == b""
    wait_until(lambda: server.refused == 1)
    idle[0].sendall(b"GET /one HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"200 OK" in idle[0].recv(1000)


def test_one_that_has_asked_nothing_for_a_second_makes_room(serve, connect, now):
    """64 connections that said nothing kept a health probe out for ten seconds."""
    server = serve(_echo, connections_max=2)
    idle = []
    for count in (1, 2):
        idle.append(connect(server))
        wait_until(lambda count=count: len(server._open) == count)
    with contextlib.suppress(ConnectionResetError):
        assert connect(server).recv(10) == b""
    now[0] += 1.5

    assert _get(server, "/livez")[0] == 200
    with contextlib.suppress(ConnectionResetError):
        assert idle[0].recv(10) == b""
    idle[1].sendall(b"GET /one HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"200 OK" in idle[1].recv(1000)
    assert (server.refused, server.cut) == (1, 1)


class _Node:
    """A connection to a node that counts what it is asked."""

    def __init__(self):
        self.answer = json.loads(ANSWER)
        self.is_closed = False

    def administer(self, verb, arguments):
        assert verb == "metrics.show"
        msgspec.convert(arguments, ShowMetrics)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def close(self):
        self.is_closed = True


_SUMS = {"places": 1, "messages": 2, "in_flight": 0, "delayed": 0, "bytes": 9, "consumers": 1}
_COUNTS = ("sent", "delivered", "acknowledged", "redelivered", "expired", "dead_lettered")
_COUNTS += ("purged", "removed", "moved_in", "moved_out", "returned")
_HISTOGRAM = {"bounds": [0.5, 1.0], "counts": [1, 2, 3], "sum": 7.5}
_PLACES = ("destination", "kind", "messages", "in_flight", "delayed", "bytes", "oldest_ms")
_PLACES += ("consumers", "producers", "blocked_sends", "paused", "delivered_ms", *_COUNTS)
_NUMBERS = ("now_ms", "connections", "sessions", "held_bytes", "max_memory_bytes")
_NUMBERS += ("paged_messages", "blocked_sends", "sends_refused", "branches_in_doubt", "lock_holds")
_NUMBERS += ("lock_holds_over_50_ms", "last_lsn", "backlog_bytes", "left_out")
ANSWER = json.dumps(
    {
        "node": "N1",
        "version": "1",
        "durable": {**_SUMS, "counters": dict.fromkeys(_COUNTS, 7)},
        "passing": {**_SUMS, "counters": dict.fromkeys(_COUNTS, 0)},
        "columns": _PLACES,
        "rows": [['a"\n\\', "queue", *[0] * (len(_PLACES) - 2)]],
        "services": [],
        "service_durations": {"PAY": _HISTOGRAM},
        "transactions": {"prepared": 2},
        "in_doubt_oldest_s": 1.5,
        "servers": [],
        **dict.fromkeys(_NUMBERS, 0),
        **dict.fromkeys(("confirmation", "commit", "batch_records"), _HISTOGRAM),
        "alerts": [["memory_high", ""]],
    }
)


@pytest.fixture
def site():
    """Its node, its link and a way to ask it."""
    node, now = _Node(), [0.0]
    link = NodeLink(lambda: node, lambda: now[0])
    ready = Health("N1", "ready", is_live=True, is_ready=True, text="ready")
    return node, link, now, Site("N1", lambda: ready, link, series_max=400)


def test_a_storm_of_scrapes_asks_the_node_once_a_second(serve, site):
    """A thousand scrapers cost the node as much as one."""
    _, link, now, pages = site
    server = serve(pages.handle)
    for _ in range(20):
        status, body, _ = _get(server, "/metrics")
        assert status == 200
        assert b'hms_messages_received_total{node="N1",durable="true"} 7' in body
    assert link.asked == 1
    now[0] += 1
    _get(server, "/metrics")
    assert link.asked == 2


def test_a_link_that_is_down_is_told_with_its_silence(serve, site):
    """One that was never heard has no silence."""
    about = {"pending_bytes": 5, "bytes_in": 7, "bytes_out": 8, "refused": 0}
    site[0].answer["links"] = [
        {"node": "N2", "presence": "failed", "heard_s_ago": 12.5, **about},
        {"node": "N3", "presence": "absent", "heard_s_ago": None, **about},
        {"node": "N4", "presence": "up", "heard_s_ago": 0.5, **about},
    ]
    body = _get(serve(site[3].handle), "/metrics")[1].decode()
    for peer, is_up in (("N2", 0), ("N3", 0), ("N4", 1)):
        assert f'hms_link_up{{node="N1",peer="{peer}"}} {is_up}' in body
    assert 'hms_link_silence_seconds{node="N1",peer="N2"} 12.5' in body
    assert 'hms_link_silence_seconds{node="N1",peer="N3"}' not in body
    assert 'hms_link_bytes_total{node="N1",peer="N4",direction="out"} 8' in body


def test_what_is_moved_over_a_link_is_told_of_each_node(serve, site):
    """A node of the release before says nothing of it."""
    about = {"presence": "up", "heard_s_ago": 0.5, "pending_bytes": 0}
    about |= {"bytes_in": 0, "bytes_out": 0, "refused": 0}
    moves = {"moved_in": 3, "moved_out": 4, "unconfirmed": 5, "lag_s": 1.25}
    site[0].answer["links"] = [{"node": "N2", **about, **moves}, {"node": "N3", **about}]
    body = _get(serve(site[3].handle), "/metrics")[1].decode()
    assert 'hms_link_lag_seconds{node="N1",peer="N2"} 1.25' in body
    assert 'hms_link_unconfirmed{node="N1",peer="N2"} 5' in body
    assert 'hms_link_moves_total{node="N1",peer="N2",direction="out"} 4' in body
    assert 'hms_link_lag_seconds{node="N1",peer="N3"}' not in body


def test_what_a_node_counts_beside_its_messages_is_there(serve, site):
    """Each of the names that a rule of somebody may have."""
    node, both = site[0], [["true", _HISTOGRAM], ["false", _HISTOGRAM]]
    node.answer |= {"delivery_latency": both, "ack_latency": both, "audit_records": 7}
    node.answer |= {"appended_bytes": 99, "store": {"kind": "journal", "rewritten_bytes": 11}}
    node.answer |= {"transaction_endings": {"committed": 3}}
    node.answer |= {"server_durations": {"bank": _HISTOGRAM}}
    node.answer["durable"]["letters"] = {"REJECTED": 5, "EXPIRED": 0}
    node.answer["rows"][0][node.answer["columns"].index("delivered_ms")] = 1500
    server = serve(site[3].handle)
    body = _get(server, "/metrics")[1].decode()
    for line in (
        'hms_delivery_latency_seconds_count{node="N1",durable="true"} 6',
        'hms_ack_latency_seconds_bucket{node="N1",durable="false",le="1"} 3',
        'hms_messages_dead_lettered_total{node="N1",durable="true",reason="REJECTED"} 5',
        'hms_messages_dead_lettered_total{node="N1",durable="true",reason="EXPIRED"} 0',
        'hms_messages_returned_total{node="N1",durable="true"} 7',
        'hms_consumers{node="N1"} 2',
        'hms_log_bytes_total{node="N1"} 99',
        'hms_compaction_bytes_total{node="N1"} 11',
        'hms_audit_records_total{node="N1"} 7',
        'hms_transaction_outcomes_total{node="N1",outcome="committed"} 3',
        'hms_server_duration_seconds_sum{node="N1",server="bank"} 7.5',
    ):
        assert line in body.splitlines()
    body = _get(server, "/metrics/destinations?name=*")[1].decode()
    last = "hms_destination_last_delivery_timestamp_seconds"
    (line,) = [line for line in body.splitlines() if line.startswith(last)]
    assert line.endswith(" 1.5")
    assert "hms_destination_messages_returned_total{" in body


def test_the_state_of_a_node_has_a_series_for_each_whether_it_answers_or_not(serve, site):
    """A rule compares with 0; a series that is not there compares with nothing."""
    node, _, _, pages = site
    node.answer |= {"state": "draining", "python": "3.13.0", "libzmq": "4.3.5"}
    body = _get(serve(pages.handle), "/metrics")[1].decode()
    assert 'hms_node_state{node="N1",state="draining"} 1' in body
    assert 'hms_node_state{node="N1",state="ready"} 0' in body
    assert 'python="3.13.0",libzmq="4.3.5"} 1' in body
    for state, shown in (("recovering", "recovering"), ("stopped", "down")):
        gone = Health("N1", state, is_live=True, is_ready=False, text=state)
        node.answer = NotConnected(what="it")
        about = Site("N1", lambda gone=gone: gone, NodeLink(lambda: node, lambda: 0.0))
        body = _get(serve(about.handle), "/metrics")[1].decode()
        states = [line for line in body.splitlines() if line.startswith("hms_node_state{")]
        assert [line for line in states if line.endswith(" 1")] == [
            f'hms_node_state{{node="N1",state="{shown}"}} 1'
        ]
        assert len(states) == 6
        assert 'hms_up{node="N1"} 0' in body


def test_a_pool_has_its_load_and_the_main_loop_its_turns(serve, site):
    """No lane has a label: their number has no bound."""
    about = {"workers": 4, "busy": 0.25, "waiting": 7, "deepest": 5}
    site[0].answer["pools"] = {"general": about}
    site[0].answer["main_loop"] = {"turns": 9, "slowest_s": _HISTOGRAM}
    body = _get(serve(site[3].handle), "/metrics")[1].decode()
    for line in (
        'hms_workers{node="N1",pool="general"} 4',
        'hms_worker_busy_ratio{node="N1",pool="general"} 0.25',
        'hms_work_waiting{node="N1",pool="general"} 7',
        'hms_lane_depth{node="N1",pool="general"} 5',
        'hms_main_loop_turns_total{node="N1"} 9',
        'hms_main_loop_seconds_bucket{node="N1",le="1"} 3',
    ):
        assert line in body.splitlines()


def test_logins_denials_services_and_transactions_are_metrics(serve, site):
    """Who they were is in the audit: users and addresses have no bound."""
    site[0].answer |= {"logins": [["refused", "PASSWORD", 3]], "denied_by": {"produce": 2}}
    site[0].answer |= {"connections_refused": 1, "logins_refused": 3, "sync": _HISTOGRAM}
    body = _get(serve(site[3].handle), "/metrics")[1].decode()
    for line in (
        'hms_logins_total{node="N1",result="refused",mechanism="PASSWORD"} 3',
        'hms_denied_total{node="N1",action="produce"} 2',
        'hms_transactions{node="N1",state="prepared"} 2',
        'hms_in_doubt_oldest_seconds{node="N1"} 1.5',
        'hms_service_duration_seconds_bucket{node="N1",service="PAY",le="1"} 3',
        'hms_service_duration_seconds_count{node="N1",service="PAY"} 6',
        'hms_log_sync_seconds_count{node="N1"} 6',
    ):
        assert line in body.splitlines()


def test_names_are_escaped_and_histograms_are_sums(serve, site):
    """A queue named with a quotation mark must not end its label."""
    body = _get(serve(site[3].handle), "/metrics")[1].decode()
    assert 'destination="a\\"\\n\\\\",kind="queue"' in body
    assert 'hms_log_commit_seconds_bucket{node="N1",le="1"} 3' in body
    assert 'hms_log_commit_seconds_bucket{node="N1",le="+Inf"} 6' in body
    assert 'hms_alert_active{node="N1",alert="memory_high",destination=""} 1' in body
    assert "hms_metrics_truncated" in body


def test_a_scrape_that_takes_it_is_compressed(serve, site):
    """Ten thousand queues are 14 MB of text."""
    server = serve(site[3].handle)
    plain = _get(server, "/metrics")[1]
    _, body, headers = _get(server, "/metrics", **{"Accept-Encoding": "gzip"})
    assert (headers["Content-Encoding"], gzip.decompress(body)) == ("gzip", plain)
    assert len(body) * 3 < len(plain)


def test_series_have_a_limit_and_what_is_missing_is_told(serve, site):
    """A label without a bound is how a monitoring system dies."""
    node, link, _, _ = site
    row = node.answer["rows"][0]
    node.answer["rows"] = [[f"q{n}", *row[1:]] for n in range(100)]
    ready = Health("N1", "ready", is_live=True, is_ready=True, text="ready")
    pages = Site("N1", lambda: ready, link, series_max=200)
    body = _get(serve(pages.handle), "/metrics/destinations?name=q*")[1].decode()
    lines = [line for line in body.splitlines() if not line.startswith("#")]
    assert len(lines) == 200
    assert lines[-1] == 'hms_metrics_truncated{node="N1"} 1'


def test_a_thousand_destinations_are_a_tenth_of_what_a_scrape_may_take(serve, site):
    """Of ten thousand at most 8 MB on the wire, and none of those asked for is left out."""
    node, link, _, _ = site
    row = node.answer["rows"][0]
    node.answer["rows"] = [
        [f"orders.{n:06}", "queue", *[(n + 1) * 7919] * len(row[2:])] for n in range(1000)
    ]
    ready = Health("N1", "ready", is_live=True, is_ready=True, text="ready")
    pages = Site("N1", lambda: ready, link, series_max=1000 * SERIES_OF_A_PLACE + 1)
    path, takes = "/metrics/destinations?name=*", {"Accept-Encoding": "gzip"}
    body = _get(serve(pages.handle), path, **takes)[1]
    lines = gzip.decompress(body).decode().splitlines()
    assert 'hms_metrics_truncated{node="N1"} 0' in lines
    assert len([line for line in lines if not line.startswith("#")]) == 1 + 1000 * SERIES_OF_A_PLACE
    assert len(body) < 800_000


def test_a_limit_of_series_beyond_what_a_node_gives_is_no_fault(serve, site):
    """The node refused the question, and it was told to be down."""
    _, link, _, _ = site
    ready = Health("N1", "ready", is_live=True, is_ready=True, text="ready")
    pages = Site("N1", lambda: ready, link, series_max=10**9)
    assert b'hms_up{node="N1"} 1' in _get(serve(pages.handle), "/metrics")[1]


def test_a_node_that_does_not_answer_is_down_and_asked_anew(serve, site):
    """A scrape that fails says nothing; hms_up 0 says what is wrong."""
    node, link, now, pages = site
    server = serve(pages.handle)
    answer, node.answer = node.answer, NotConnected(what="it")
    assert b'hms_up{node="N1"} 0' in _get(server, "/metrics")[1]
    assert node.is_closed
    node.answer = answer
    assert b'hms_up{node="N1"} 1' in _get(server, "/metrics")[1]
    openmetrics = {"Accept": "application/openmetrics-text; version=1.0.0"}
    now[0] += 1
    status, body, headers = _get(server, "/metrics", **openmetrics)
    assert (status, body.endswith(b"# EOF\n")) == (200, True)
    assert headers["Content-Type"].startswith("application/openmetrics-text")
    assert link.asked == 3


def test_a_machine_that_stands_by_asks_nobody_and_tells_what_it_has(serve, site):
    """Who answers for its node is on another machine, and is scraped there."""
    _, link, _, _ = site
    waits = Health("N1", "standby", is_live=True, is_ready=False, text="stands by")
    said = {"node": "N1", "replica": "b", "version": "1", "store": "journal"}
    said |= {"disk": {"free_bytes": 7}, "copy": {"epoch": 3, "is_in_sync": True, "refused": 2}}
    pages = Site("N1", lambda: waits, link, figures=lambda: said)
    server = serve(pages.handle)
    body = _get(server, "/metrics")[1].decode()
    for line in (
        'hms_node_state{node="N1",replica="b",state="standby"} 1',
        'hms_store_free_bytes{node="N1",replica="b"} 7',
        'hms_replica_follows{node="N1",replica="b"} 1',
        'hms_replica_refused_frames_total{node="N1",replica="b"} 2',
    ):
        assert line in body.splitlines()
    assert "hms_up" not in body
    assert "hms_process" not in body
    assert _get(server, "/metrics/destinations?name=*")[1] == b""
    openmetrics = {"Accept": "application/openmetrics-text; version=1.0.0"}
    assert _get(server, "/metrics", **openmetrics)[1].endswith(b"# EOF\n")
    assert link.asked == 0


def test_what_there_is_not_is_said(serve, site):
    """Each wrong request has an answer of its own."""
    server = serve(site[3].handle)
    assert _get(server, "/nothing")[0] == 404
    assert _get(server, f"/metrics/destinations?name={'x' * 2000}")[0] == 400
    form = {"Content-Type": "application/x-www-form-urlencoded", "Content-Length": "0"}
    assert _get(server, "/metrics", method="POST", **form)[0] == 405
    assert _get(server, "/metrics", method="POST", **{"Content-Length": "99999999"})[0] == 413
    assert _get(server, "/metrics", method="POST", **{"Content-Length": "2"})[0] == 415
    assert [_get(server, page)[0] for page in ("/livez", "/readyz", "/healthz")] == [200] * 3


class _Blocks:
    """A file of so many bytes, that says when it is not needed any more."""

    def __init__(self, length):
        self.length = self.left = length
        self.is_closed = False

    def read(self, count):
        data = b"x" * min(count, self.left)
        self.left -= len(data)
        return data

    def close(self):
        self.is_closed = True


def test_a_file_is_sent_in_blocks_and_let_go_whoever_reads_it(serve, connect):
    """To the end, by a HEAD, or by one who goes away in the middle."""
    made = []

    def give(_):
        made.append(_Blocks(8 << 20))
        return Answer(b"", stream=made[-1])

    server = serve(give)
    status, body, headers = _get(server, "/")
    assert (status, len(body), headers["Content-Length"]) == (200, 8 << 20, str(8 << 20))
    assert _get(server, "/", method="HEAD")[1] == b""
    made.append(None)
    reader = connect(server, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert reader.recv(1)
    reader.close()
    wait_until(lambda: made[-1] is not None and made[-1].is_closed)
    assert [one.is_closed for one in made if one] == [True] * 3
    assert made[-1].left


def test_who_reads_a_file_steadily_has_more_time_and_who_stops_is_cut(serve, connect, now):
    """The deadline is one for each block."""
    server = serve(lambda _: Answer(b"", stream=_Blocks(64 << 20)))
    reader = connect(server, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert reader.recv(1)
    now[0] += 50

    def has_more_time():
        assert reader.recv(1 << 20)
        return [*server._open.values()] == [now[0] + 60]

    wait_until(has_more_time, pause_s=0)

    def is_cut():
        now[0] += 61
        return not server._open

    wait_until(is_cut)
    assert server.cut == 1


def test_a_page_that_takes_a_file_gets_it_in_blocks_and_others_get_none(serve):
    """What it leaves is read, so that the sender hears why."""

    def take(request, body):
        return Answer(f"{request.path} {body.length} {len(body.read(3))}".encode())

    server = serve(_echo, uploads={"/up": take})

    def post(path, data, **headers):
        connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
        try:
            connection.request("POST", path, data, {"Content-Type": KIND, **headers})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    assert post("/up", b"x" * (5 << 20)) == (200, f"/up {5 << 20} 3".encode())
    assert post("/up", b"x", **{"Content-Length": "-1"})[0] == 411
    assert post("/up", b"x", Host="evil.example")[0] == 421
    assert post("/other", b"x")[0] == 415
    assert post("/other", b"x" * 100_000)[0] == 413


KIND = "multipart/form-data; boundary=x"


def test_a_page_may_say_that_its_answer_takes_time(serve, now):
    """Else it would be cut before it is there."""
    begun, gate = threading.Semaphore(0), threading.Event()

    def slow(request):
        if request.path == "/long":
            request.take_time(600)
        begun.release()
        gate.wait(60)
        return Answer(b"done")

    server = serve(slow)
    results = {}

    def ask(path):
        try:
            results[path] = _get(server, path)[1]
        except OSError:
            results[path] = b""

    threads = [threading.Thread(target=ask, args=(path,)) for path in ("/long", "/short")]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert begun.acquire(timeout=60)
    now[0] += 61
    wait_until(lambda: server.cut)
    gate.set()
    for thread in threads:
        thread.join()
    assert (results, server.cut) == ({"/long": b"done", "/short": b""}, 1)
