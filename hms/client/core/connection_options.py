"""Options of a connection."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hms.client.core import tracing
from hms.client.core.arguments import (
    check_flag,
    check_function,
    check_seconds,
    check_text,
)
from hms.client.core.client_keys import ClientKeys, client_keys
from hms.client.core.credentials import Credentials
from hms.client.core.events import Event
from hms.errors.catalogue import InvalidArgument
from hms.errors.tree import HmsError

_TIMES = "reconnect_interval_s", "reconnect_period_s", "request_timeout_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Times are seconds; reconnect_period_s 0: try forever. connect_timeout_s: how long a first
    connection is tried, also where nothing listens yet; None: 10 s, and not where nothing listens.

    exception_listener is called, on a thread of the library, with every error that no call raises;
    event_listener with every Event. In asyncio both are called in the loop, and may be coroutines.
    client_secret: who this client is to the node, 16 to 64 bytes, drawn at random when empty; who
    comes back with the same one takes the older connection over, and its commits are recognised
    (F-D9). token: instead of a password, or a function that gives
    one at each login; allow_unsecured: go on with a node that checks none.
    server_keys: of an encrypted connection, those that the node may show; key_file: the client's
    own pair. keys: both, as they were read. trace: the process traces what it does with HMS.
    """

    user: str = ""
    password: str = field(default="", repr=False)
    token: str | Callable[[], str] = field(default="", repr=False)
    domain_password: str = field(default="", repr=False)
    allow_unsecured: bool = False
    server_keys: Sequence[str] = ()
    key_file: str = ""
    keys: ClientKeys | None = field(default=None, init=False, repr=False)
    client_id: str = ""
    client_name: str = ""
    trace: bool = False
    is_server: bool = False
    reconnect: bool = True
    reconnect_interval_s: float = 5
    reconnect_period_s: float = 0
    request_timeout_s: float = 200
    connect_timeout_s: float | None = None
    exception_listener: Callable[[HmsError], object] | None = None
    event_listener: Callable[[Event], object] | None = None
    client_secret: bytes = field(default=b"", repr=False)
    address_order: str = "priority"
    """Of several addresses: as they stand, round_robin over the process's connections, or random.
    Members of the cluster that the node tells of are tried behind them."""

    def __post_init__(self) -> None:
        for what in ("client_id", "client_name"):
            check_text(what, getattr(self, what))
        _ = self.credentials
        object.__setattr__(self, "keys", client_keys(self.server_keys, self.key_file))
        for what in ("is_server", "reconnect", "trace"):
            check_flag(what, getattr(self, what))
        if self.trace:
            _trace()
        for what in _TIMES:
            check_seconds(what, getattr(self, what))
        if self.connect_timeout_s is not None:
            check_seconds("connect_timeout_s", self.connect_timeout_s)
        for what in ("exception_listener", "event_listener"):
            check_function(what, getattr(self, what))

    @property
    def credentials(self) -> Credentials:
        """What it proves itself with."""
        return Credentials(
            self.user, self.password, self.token, self.domain_password, self.allow_unsecured
        )


def _trace() -> None:
    """As hms.otel.instrument() does, unless something traces already."""
    if tracing.tracer is not None:
        return
    try:
        from hms.otel import instrument  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as missing:
        detail = f"it needs {missing.name}: pip install 'hybrid-messaging[otel]'"
        raise InvalidArgument(what="trace", detail=detail) from missing
    instrument()
