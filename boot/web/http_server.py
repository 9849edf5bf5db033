"""A small HTTP server: every connection has a deadline, and there are only so many at once.

What a client may cost is bounded: a connection beyond the most takes the place of the oldest one
that has asked nothing for a second, or is closed at once where there is none; one that sends its
request slowly or reads its answer slowly is cut when its time is over; requests have no body
but a short form; an answer is made before it is sent, so nothing of the node waits for a reader.
A page that takes a file, or gives one, says so: its body comes and goes in blocks, and its time
ends when no block does.
"""

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer
from typing import Any, Protocol
from urllib.parse import SplitResult, parse_qs, urlsplit

__all__ = ["Answer", "Body", "Request", "Stream", "WebServer"]

log = logging.getLogger("hms.web")

CONNECTIONS_MAX = 64
DEADLINE_S = 10.0
IDLE_S = 1.0
"""A connection that has asked nothing for so long gives way to one that may be a health probe."""
BODY_BYTES_MAX = 64 << 10
FIELDS_MAX = 300
LENGTH_DIGITS_MAX = 12
TARGET_MAX = 4096
BACKLOG = 128
BLOCK_BYTES = 64 << 10
TRANSFER_S = 600.0
"""So long a file may take in all, however steadily it is read."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # under no-referrer a browser calls the Origin of a form null
    "Cache-Control": "no-store",
    "Connection": "close",
}


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for. arguments: of the address; form: of a POST."""

    method: str
    path: str
    arguments: Mapping[str, list[str]]
    headers: Mapping[str, str]
    form: Mapping[str, list[str]] = field(default_factory=dict)
    take_time: Callable[[float], None] = lambda _: None
    """Says that its answer takes so many seconds, which its connection then has from now on."""

    def argument(self, name: str, otherwise: str = "") -> str:
        """The last one of that name."""
        return self.arguments.get(name, [otherwise])[-1]


class Stream(Protocol):
    """What is sent in blocks. length: its bytes."""

    length: int

    def read(self, count: int) -> bytes:
        """The next of them, at most so many; b"" at the end."""

    def close(self) -> None:
        """It was sent, or nobody reads it any more."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent back, whole. stream: instead of a body."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: Stream | None = None


class _Source(Protocol):
    def read(self, count: int, /) -> bytes: ...


class Body:
    """What a POST brings, read as it comes. length: its bytes; kind: its Content-Type."""

    def __init__(self, source: _Source, length: int, kind: str) -> None:
        self.length, self.kind = length, kind
        self._source, self._left = source, length

    def read(self, count: int) -> bytes:
        """So many bytes, fewer at the end; b"" behind it, and where its sender stopped."""
        try:
            data = self._source.read(min(count, self._left))
        except OSError:
            data = b""
        self._left = self._left - len(data) if data else 0
        return data


Handle = Callable[[Request], Answer]
Upload = Callable[[Request, Body], Answer]


class WebServer(TCPServer):
    """Serves in a thread for each connection. hosts: names by which it may be asked, besides its
    own address: a page of another site that has its name lead here is refused. uploads: what takes
    the file that is posted to a path."""

    allow_reuse_address = True
    request_queue_size = BACKLOG
    daemon_threads = True

    def __init__(
        self,
        host: str,
        port: int,
        handle: Handle,
        hosts: frozenset[str] = frozenset(),
        *,
        uploads: Mapping[str, Upload] | None = None,
        connections_max: int = CONNECTIONS_MAX,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.handle_request_of = handle
        self.uploads = uploads or {}
        self.deadline_s = deadline_s
        self._connections_max = connections_max
        self._lock = threading.Lock()
        self._open: dict[socket.socket, float] = {}
        self._silent: dict[socket.socket, float] = {}
        """Since when those are open whose request has not come, the oldest first."""
        self.refused = 0
        """Connections that were closed at once, as there were too many."""
        self.cut = 0
        """Those whose time was over."""
        super().__init__((host, port), _Handler)
        self.port = int(self.server_address[1])
        self.hosts = hosts | {host, "localhost", "127.0.0.1", "[::1]", "::1"}

    def process_request(self, request: Any, client_address: Any) -> None:
        """Take the connection into a thread of its own, if there is room."""
        now = time.monotonic()
        with self._lock:
            if len(self._open) >= self._connections_max:
                self._displace(now)
            is_taken = len(self._open) < self._connections_max
            if is_taken:
                self._open[request] = now + self.deadline_s
                self._silent[request] = now
            else:
                self.refused += 1
        if not is_taken:
            self.shutdown_request(request)
            return
        target = self._serve
        threading.Thread(target=target, args=(request, client_address), daemon=True).start()

    def _displace(self, now: float) -> None:
        """Cut the oldest one that has asked nothing for a while."""
        one, since = next(iter(self._silent.items()), (None, now))
        if one is None or now - since < IDLE_S:
            return
        del self._silent[one], self._open[one]
        self.cut += 1
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)

    def has_asked(self, request: socket.socket) -> None:
        """The request of this connection has come."""
        with self._lock:
            self._silent.pop(request, None)

    def _serve(self, request: Any, client_address: Any) -> None:
        try:
            with contextlib.suppress(OSError, ValueError):
                self.finish_request(request, client_address)
        finally:
            with self._lock:
                self._open.pop(request, None)
                self._silent.pop(request, None)
            self.shutdown_request(request)

    def service_actions(self) -> None:
        """Cut what has taken too long; called about twice a second."""
        now = time.monotonic()
        with self._lock:
            late = [one for one, until in self._open.items() if now >= until]
            self.cut += len(late)
            for one in late:
                self._open[one] = float("inf")
        for one in late:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def take_time(self, request: socket.socket, seconds: float) -> None:
        """Its connection has so many seconds from now on, unless it was cut."""
        with self._lock:
            if self._open.get(request, float("inf")) != float("inf"):
                self._open[request] = time.monotonic() + seconds
        with contextlib.suppress(OSError):
            request.settimeout(max(seconds, self.deadline_s))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no error of ours."""


class _Handler(BaseHTTPRequestHandler):
    """One request, and the connection is over."""

    server: WebServer
    server_version = "hms"
    sys_version = ""
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        """Each wait for the client has an end, too."""
        self.request.settimeout(self.server.deadline_s)
        super().setup()

    def parse_request(self) -> bool:
        """The head of a request has come, whole."""
        is_good = super().parse_request()
        self.server.has_asked(self.request)
        return is_good

    def do_GET(self) -> None:
        """Read something."""
        self._answer({})

    do_HEAD = do_GET  # noqa: N815 - the base class names it

    def do_POST(self) -> None:
        """Order something."""
        length = self.headers.get("Content-Length", "")
        kind = self.headers.get("Content-Type", "").partition(";")[0].strip()
        upload = self.server.uploads.get(urlsplit(self.path).path)
        if upload is not None and kind == "multipart/form-data":
            self._take(upload, length)
            return
        if not length.isdigit() or int(length) > BODY_BYTES_MAX:
            self._send(
                Answer(b"the form is too long\n", status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            )
            return
        if kind != "application/x-www-form-urlencoded":
            self._send(Answer(b"a form\n", status=HTTPStatus.UNSUPPORTED_MEDIA_TYPE))
            return
        text = self.rfile.read(int(length)).decode("utf-8", errors="replace")
        try:
            form = parse_qs(text, keep_blank_values=True, max_num_fields=FIELDS_MAX)
        except ValueError:
            self._send(Answer(b"too many fields\n", status=HTTPStatus.BAD_REQUEST))
            return
        self._answer(form)

    def _take(self, upload: Upload, length: str) -> None:
        """A file. What is left of one that was refused is read, as a browser reads no answer
        before it has sent everything."""
        if not (length.isascii() and length.isdigit() and len(length) <= LENGTH_DIGITS_MAX):
            self._send(Answer(b"its length is needed\n", status=HTTPStatus.LENGTH_REQUIRED))
            return
        body = Body(self.rfile, int(length), self.headers.get("Content-Type", ""))
        answer = self._answered(lambda request: upload(request, body), {})
        while body.read(BLOCK_BYTES):
            continue
        self._send(answer)

    def _answer(self, form: Mapping[str, list[str]]) -> None:
        self._send(self._answered(self.server.handle_request_of, form))

    def _answered(self, handle: Handle, form: Mapping[str, list[str]]) -> Answer:
        refused = self._refused()
        if refused is not None:
            return refused
        where: SplitResult = urlsplit(self.path)
        arguments = parse_qs(where.query, max_num_fields=100)
        headers = {name.lower(): value for name, value in self.headers.items()}
        method = "GET" if self.command == "HEAD" else self.command
        take_time = partial(self.server.take_time, self.request)
        request = Request(method, where.path, arguments, headers, form, take_time)
        try:
            return handle(request)
        except Exception:
            log.exception("%s %s", method, where.path[:200].encode("unicode_escape").decode())
            return Answer(b"an error of hms web\n", status=HTTPStatus.INTERNAL_SERVER_ERROR)

    def _refused(self) -> Answer | None:
        if len(self.path) > TARGET_MAX:
            return Answer(b"the address is too long\n", status=HTTPStatus.REQUEST_URI_TOO_LONG)
        asked = self.headers.get("Host", "")
        host = asked.rpartition(":")[0] if asked.rpartition(":")[2].isdigit() else asked
        if host.lower() not in self.server.hosts:
            text = b"this name is not one of --host\n"
            return Answer(text, status=HTTPStatus.MISDIRECTED_REQUEST)
        return None

    def _send(self, answer: Answer) -> None:
        """sendall() has the whole of the timeout, not a part of it for each piece."""
        self.close_connection = True
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", answer.content_type)
        stream = answer.stream
        length = len(answer.body) if stream is None else stream.length
        self.send_header("Content-Length", str(length))
        try:
            self.end_headers()
            if stream is not None and self.command != "HEAD":
                self._copy(stream)
            elif self.command != "HEAD":
                self.wfile.write(answer.body)
        finally:
            if stream is not None:
                stream.close()

    def _copy(self, stream: Stream) -> None:
        """A reader has the deadline for each block, and TRANSFER_S for all of them."""
        until_s = time.monotonic() + TRANSFER_S
        while block := stream.read(BLOCK_BYTES):
            left_s = until_s - time.monotonic()
            self.server.take_time(self.request, min(left_s, self.server.deadline_s))
            self.wfile.write(block)

    def end_headers(self) -> None:
        """What every answer has, those to faulty requests too."""
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, *_: Any) -> None:
        """Strangers write no lines."""
