"""Connection: one client's, or one server's, connection to a node, which outlives its sockets.

With reconnect (F-K4) it connects again by itself, over all the addresses in turn, and every call
waits through the outage up to request_timeout_s; without, a lost connection ends all calls at once.
"""

import os
from collections.abc import Sequence
from time import monotonic
from typing import Any, Self

from field_buffer.catalogue import ConnectionClosed, ConnectionRefused, InvalidArgument
from tpmon.asked import OnLoss, own_copy
from tpmon.calling import Calling
from tpmon.link import Link, State
from tpmon.options import Options
from tpmon.protocol.frames import Kind
from tpmon.protocol.structures import Administer, Hello
from tpmon.reconnect import Attempts

LIBRARY = "hms-python"
GOODBYE_MS = 1000
"""How long a closed socket may take to send its last frames."""
_READING = (".list", ".show", ".status")


class Connection(Calling):
    """See the module; options: the fields of tpmon.options.Options."""

    def __init__(self, address: str | Sequence[str], **options: Any) -> None:
        addresses = [address] if isinstance(address, str) else list(address)
        _check_addresses(addresses)
        chosen = Options(**options)
        link = Link(_hello(chosen))
        link.on_error = chosen.exception_listener
        self._connect_timeout_s = chosen.connect_timeout_s
        super().__init__(
            link,
            addresses,
            reconnect=chosen.reconnect,
            attempts=Attempts(addresses, chosen.reconnect_interval_s, chosen.reconnect_period_s),
            request_timeout_s=chosen.request_timeout_s,
        )

    # ---- open and close

    def open(self) -> Self:
        """Connect; ConnectionRefused after connect_timeout_s, or the node's own refusal."""
        link = self.link
        with self.lock:
            self.start()
            deadline = monotonic() + self._connect_timeout_s
            self.wait_for(link, lambda: link.state in (State.UP, State.ENDED), deadline)
            if link.state is State.UP:
                return self
            error = link.error if link.state is State.ENDED else self._refused()
            self.stop(error, 0)
        self.join()
        raise own_copy(error)

    def _refused(self) -> ConnectionRefused:
        address = ", ".join(self.addresses)
        return ConnectionRefused(address=address, timeout_s=self._connect_timeout_s)

    def close(self) -> None:
        """Wait for the confirmation of what was sent, settle what was received, and disconnect."""
        link = self.link
        with self.lock:
            if link.state is not State.ENDED:
                self._settle_all()
                link.tell(Kind.GOODBYE)
                self.flush()
                self.stop(
                    ConnectionClosed(what="connection"),
                    GOODBYE_MS if link.state is State.UP else 0,
                )
        self.join()

    def _settle_all(self) -> None:
        for participant in list(self.link.participants):
            participant.tick()
        for push in list(self.link.on_room.values()):
            push()
        self.flush()
        deadline = monotonic() + self.request_timeout_s
        self.wait_for(self.link, self._is_settled, deadline)

    def _is_settled(self) -> bool:
        link = self.link
        return link.state is State.ENDED or not (link.sends_in_flight or link.on_room)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def is_connected(self) -> bool:
        """Whether the node is reached right now."""
        return self.link.state is State.UP

    @property
    def is_ended(self) -> bool:
        """Whether it is closed, or lost for good."""
        return self.link.state is State.ENDED

    @property
    def node_name(self) -> str:
        """The node's name, from its last WELCOME."""
        return self.link.welcome.node if self.link.welcome is not None else ""

    # ---- administration

    def administer(self, verb: str, arguments: dict[str, Any] | None = None) -> Any:
        """An operator's command, such as "queue.list"; returns plain data.

        One that changes something is not repeated when the connection is lost: ConnectionLost.
        """
        on_loss = OnLoss.REPEAT if verb.endswith(_READING) else OnLoss.FAIL
        return self.request(Administer(verb, arguments or {}), on_loss=on_loss)


def _hello(options: Options) -> Hello:
    """Who connects, under a number drawn at random."""
    return Hello(
        int.from_bytes(os.urandom(8), "little") or 1,
        options.client_id,
        options.user,
        options.password,
        options.client_name,
        LIBRARY,
        options.is_server,
    )


def _check_addresses(addresses: Sequence[str]) -> None:
    if not addresses:
        raise InvalidArgument(what="address", detail="there is none")
    for address in addresses:
        if not address.startswith(("tcp://", "ipc://")):
            detail = f"{address!r} is not of the form tcp://HOST:PORT or ipc://PATH"
            raise InvalidArgument(what="address", detail=detail)
