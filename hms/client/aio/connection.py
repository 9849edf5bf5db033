"""connect(): the connection with sessions on it."""

from collections.abc import Callable, Generator, Sequence
from typing import Any, Self

from hms.client.aio.session import Session
from hms.client.core.async_connection import AsyncConnection
from hms.client.core.events import Event
from hms.client.core.outcomes import Outcome
from hms.client.destinations import Destination, parse_destination, watched_name
from hms.client.member_defaults import with_defaults
from hms.client.message_admin import AsyncAdmin
from hms.client.opening_steps import new_session
from hms.client.profiles.profiled import with_profile
from hms.client.public_names import public_names
from hms.client.schedules import Schedule, schedule_named, schedule_of, schedules_asked
from hms.constants import AckMode
from hms.errors.tree import HmsError


class Connection(AsyncConnection):
    """A connection to a node, for the tasks of one event loop; leaving its block closes it."""

    def __await__(self) -> Generator[Any, None, Self]:
        return self.open().__await__()

    @with_defaults("session")
    def session(
        self,
        ack: AckMode = AckMode.AUTO,
        transacted: bool = False,
        xa: bool = False,
        asynchronous: bool = False,
    ) -> Session:
        """A session, the unit of order and of transactions: await it, or enter its block.

        asynchronous: its consumers have a service called for every message.
        """
        _ = self.loop  # IllegalState when it was not awaited
        self.requests.check_open()
        state, opening = new_session(
            self.link, ack, is_transacted=transacted, is_xa=xa, is_asynchronous=asynchronous
        )
        self.flush()
        return Session(self, state, opening, is_asynchronous=asynchronous)

    @property
    def admin(self) -> AsyncAdmin:
        """What operators do to messages that wait: list, move, copy, delete, expire, alter."""
        return AsyncAdmin(self)

    async def outcome(self, token: str) -> Outcome:
        """What became of a send or commit in doubt, by the token of its SendInDoubt or
        CommitInDoubt: asked of the node whose log may have it, and final. What is not in the log is
        withdrawn first, so that it never will be. TokenRefused, OutcomeElsewhere."""
        return await self.run(self.requests.asking_outcome(token))

    async def watch(self, dest: Destination | str) -> None:
        """Have the event listener told whether there is a consumer at a destination: now, and
        whenever that changes, also over a reconnect (F-E11). DestinationNotFound, ConsumerLimit."""
        destination = parse_destination(dest)
        await self.run(self.requests.watching(destination.kind, watched_name(destination)))

    async def schedules(
        self, kind: str = "", destination: str = "", limit: int = 1000
    ) -> list[Schedule]:
        """Schedules and delayed messages, the next one due first; kind "schedule" or "delayed":
        those only; destination: such as "queue:orders"."""
        asked = schedules_asked(kind, destination, limit)
        return [
            schedule_of(one)
            for one in await self.run(
                self.requests.administering("schedule.list", asked, "schedules()")
            )
        ]

    async def schedule(self, name: str) -> Schedule:
        """A schedule by its name, or a delayed message by its id; ScheduleNotFound."""
        return schedule_of(
            await self.run(
                self.requests.administering("schedule.show", schedule_named(name), "schedule()")
            )
        )

    async def cancel_schedule(self, name: str) -> None:
        """End a schedule, or take back a message that waits for its time, given by its id.
        ScheduleNotFound."""
        await self.run(
            self.requests.administering(
                "schedule.cancel", schedule_named(name), "cancel_schedule()"
            )
        )

    def __repr__(self) -> str:
        return f"<aio.Connection {', '.join(self.addresses)} {self.link.state.value}>"

    def __dir__(self) -> list[str]:
        return public_names(self)


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
    """A connection to a node, or to the first that answers of several: await it, or enter its
    block. The arguments are those of hms.connect(); the listeners are called in the event loop and
    may be coroutine functions. ConnectionRefused as hms.connect() raises it."""
    given: dict[str, Any] = dict(locals())
    addresses, _ = given.pop("address"), given.pop("profile")
    return Connection(addresses, **given)
