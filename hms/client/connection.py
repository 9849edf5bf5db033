"""connect(): the connection with sessions on it."""

from collections.abc import Callable, Sequence
from typing import Any

import hms.client.core.blocking_connection
from hms.client.core.events import Event
from hms.client.core.outcomes import Outcome
from hms.client.destinations import Destination, parse_destination, watched_name
from hms.client.member_defaults import with_defaults
from hms.client.message_admin import Admin
from hms.client.profiles.profiled import with_profile
from hms.client.public_names import public_names
from hms.client.schedules import Schedule, schedule_named, schedule_of, schedules_asked
from hms.client.session import Session, open_session
from hms.constants import AckMode
from hms.errors.tree import HmsError


class Connection(hms.client.core.blocking_connection.Connection):
    """A connection to a node; leaving its block closes it."""

    @with_defaults("session")
    def session(
        self,
        ack: AckMode = AckMode.AUTO,
        transacted: bool = False,
        xa: bool = False,
        asynchronous: bool = False,
    ) -> Session:
        """A session, the unit of order and of transactions; use it from one thread at a time.

        asynchronous: its consumers have a service called for every message.
        """
        return open_session(
            self, ack=ack, is_transacted=transacted, is_xa=xa, is_asynchronous=asynchronous
        )

    def __repr__(self) -> str:
        return f"<Connection {', '.join(self.addresses)} {self.link.state.value}>"

    # ---- as in asyncio; made by scripts/generate-client

    @property
    def admin(self) -> Admin:
        """What operators do to messages that wait: list, move, copy, delete, expire, alter."""
        return Admin(self)

    def outcome(self, token: str) -> Outcome:
        """What became of a send or commit in doubt, by the token of its SendInDoubt or
        CommitInDoubt: asked of the node whose log may have it, and final. What is not in the log is
        withdrawn first, so that it never will be. TokenRefused, OutcomeElsewhere."""
        return self.run(self.requests.asking_outcome(token))

    def watch(self, dest: Destination | str) -> None:
        """Have the event listener told whether there is a consumer at a destination: now, and
        whenever that changes, also over a reconnect (F-E11). DestinationNotFound, ConsumerLimit."""
        destination = parse_destination(dest)
        self.run(self.requests.watching(destination.kind, watched_name(destination)))

    def schedules(self, kind: str = "", destination: str = "", limit: int = 1000) -> list[Schedule]:
        """Schedules and delayed messages, the next one due first; kind "schedule" or "delayed":
        those only; destination: such as "queue:orders"."""
        asked = schedules_asked(kind, destination, limit)
        return [
            schedule_of(one)
            for one in self.run(self.requests.administering("schedule.list", asked, "schedules()"))
        ]

    def schedule(self, name: str) -> Schedule:
        """A schedule by its name, or a delayed message by its id; ScheduleNotFound."""
        return schedule_of(
            self.run(
                self.requests.administering("schedule.show", schedule_named(name), "schedule()")
            )
        )

    def cancel_schedule(self, name: str) -> None:
        """End a schedule, or take back a message that waits for its time, given by its id.
        ScheduleNotFound."""
        self.run(
            self.requests.administering(
                "schedule.cancel", schedule_named(name), "cancel_schedule()"
            )
        )

    def __dir__(self) -> list[str]:
        return public_names(self)

    # ---- end of what is made


@with_profile
def connect(
    address: str | Sequence[str] | None = None,
    *,
    profile: str | None = None,
    user: str = "",
    password: str = "",
    token: str | Callable[[], str] = "",
    server_keys: Sequence[str] = (),
    key_file: str = "",
    client_id: str = "",
    client_name: str = "",
    reconnect: bool = True,
    reconnect_interval_s: float = 5,
    reconnect_period_s: float = 0,
    request_timeout_s: float = 200,
    connect_timeout_s: float | None = None,
    address_order: str = "priority",
    allow_unsecured: bool = False,
    trace: bool = False,
    exception_listener: Callable[[HmsError], object] | None = None,
    event_listener: Callable[[Event], object] | None = None,
) -> Connection:
    """Connect to a node, or to the first that answers of several: in address_order "priority" as
    they stand, "round_robin" over the connections of the process, or "random".

    With reconnect a lost connection is opened again, and calls wait through the outage up to
    request_timeout_s; reconnect_period_s 0 tries forever. A port where nothing listens is told
    at once; with connect_timeout_s it is tried again for so many seconds. On a thread of the
    library are called: exception_listener with a lost connection at once, and with sends and
    acknowledgements that failed while no call waited for them; event_listener with every Event.
    token: of a user, instead of a password, or a function that gives one at each login; neither is
    sent before the node asks, nor where others could read it.
    server_keys: of an encrypted connection over TCP, the public keys that the node may show;
    key_file: the client's own pair, by which a node may know it; hms keys create writes one.
    trace: all that the process does with HMS is traced from now on, as by hms.otel.instrument(),
    with the extra `otel`.
    profile: of hms-client.toml, from which comes what is not given here, the address too; without
    one and without an address that of HMS_PROFILE. "": the file is not read.
    ConnectionRefused, InvalidArgument, ClientConfigError, ProfileNotFound, LoginRefused,
    LoginRequired, InsecureTransport, ServerKeyMismatch, KeyFileError;
    LoginNotChecked from a node without logins, unless allow_unsecured.
    """
    given: dict[str, Any] = dict(locals())
    addresses, _ = given.pop("address"), given.pop("profile")
    return Connection(addresses, **given).open()
