"""Sessions of the console: a cookie, a token against forged requests, a connection to the node.

On a node with logins each session has a connection of its own, with the login of its user:
the node decides what it may see and do. On an open node all share one connection.
"""

import hmac
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import hms
from hms.errors.catalogue import LoginRefused, LoginRequired
from hms.errors.tree import HmsError

__all__ = ["ConsoleSession", "Sessions"]

SESSIONS_MAX = 100
IDLE_S = 30 * 60.0
LIFE_S = 8 * 3600.0
WAIT_S = 5.0
COOKIE = "hms_console"


@dataclass(slots=True)
class _Line:
    """A connection that one request uses at a time; connect: opens it anew when it is lost, or
    another one with the same login, and with options of its own."""

    connect: Callable[..., "hms.Connection"]
    lock: threading.Lock = field(default_factory=threading.Lock)
    connection: "hms.Connection | None" = None

    def close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()


@dataclass(slots=True)
class ConsoleSession:
    """user "": of an open node."""

    user: str
    line: _Line
    token: str
    began_s: float
    used_s: float

    @contextmanager
    def connection(self) -> Iterator["hms.Connection"]:
        """Of one request alone; given up when it is lost."""
        line = self.line
        if not line.lock.acquire(timeout=WAIT_S):
            raise hms.errors.RequestTimeout(what="the console", timeout_s=WAIT_S)
        try:
            if line.connection is None:
                line.connection = line.connect()
            yield line.connection
        except (hms.errors.ConnectionLost, hms.errors.ConnectionClosed, hms.errors.RequestTimeout):
            line.close()
            raise
        finally:
            line.lock.release()

    def open(self, **options: Any) -> "hms.Connection":
        """Another connection with its login, which its caller closes; options: of hms.connect()."""
        return self.line.connect(**options)

    def is_token(self, given: str) -> bool:
        """Whether a form of ours was sent."""
        return hmac.compare_digest(self.token.encode(), given.encode())


class Sessions:
    """connect: opens a connection with a user and a password, "" for none, and with options of
    hms.connect() where one needs them. is_secured: as hms.conf says; the node may be secured
    later."""

    def __init__(
        self,
        connect: Callable[..., "hms.Connection"],
        *,
        is_secured: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.is_secured = is_secured
        self._connect = connect
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: dict[str, ConsoleSession] = {}
        self._shared = _Line(self._connect_all)

    def find(self, cookies: str) -> ConsoleSession | None:
        """The session of a request's cookies, unless it is over."""
        given = dict(
            part.strip().partition("=")[::2] for part in cookies.split(";") if "=" in part
        ).get(COOKIE, "")
        with self._lock:
            self._age()
            found = self._sessions.get(given)
            if found is not None and self.is_secured and not found.user:
                self._end(given)  # it began when the node was open
                return None
            if found is not None:
                found.used_s = self._clock()
            return found

    def _connect_all(self, **options: Any) -> "hms.Connection":
        """The connection that all share on an open node. One that has been secured since lets the
        console in by its process, which is no right of its visitors."""
        connection = self._connect("", "", **options)
        welcome = connection.link.welcome
        if welcome is not None and welcome.is_secured:
            connection.close()
            self.is_secured = True
            raise LoginRequired(address="the node", mechanisms="open the page anew")
        return connection

    def begin(self, user: str = "", password: str = "") -> tuple[ConsoleSession, str]:
        """A new one, and the cookie for it; raises what the node says to the login. Without a user
        and a password the node would let in the console itself, by its process: nobody is asked
        then."""
        line = self._shared
        if self.is_secured:
            if not (user and password):
                raise LoginRefused(address="the console")
            line = _Line(partial(self._connect, user, password))
            line.connection = line.connect()
        now = self._clock()
        made = ConsoleSession(user, line, secrets.token_urlsafe(32), now, now)
        key = secrets.token_urlsafe(32)
        with self._lock:
            self._age()
            while len(self._sessions) >= SESSIONS_MAX:
                self._end(min(self._sessions, key=lambda k: self._sessions[k].used_s))
            self._sessions[key] = made
        return made, f"{COOKIE}={key}; Path=/; HttpOnly; SameSite=Strict"

    def end(self, session: ConsoleSession) -> None:
        """It logs out."""
        with self._lock:
            for key in [key for key, one in self._sessions.items() if one is session]:
                self._end(key)

    def close(self) -> None:
        """End all."""
        with self._lock:
            for key in list(self._sessions):
                self._end(key)
        self._shared.close()

    def _age(self) -> None:
        now = self._clock()
        for key, one in list(self._sessions.items()):
            if now - one.used_s >= IDLE_S or now - one.began_s >= LIFE_S:
                self._end(key)

    def _end(self, key: str) -> None:
        line = self._sessions.pop(key).line
        if line is not self._shared:
            try:
                line.close()
            except HmsError:
                line.connection = None
