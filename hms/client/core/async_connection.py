"""AsyncConnection: one client's connection to a node, for asyncio, which outlives its sockets."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Self

from hms.client.core import current_transaction
from hms.client.core.calls import Calls
from hms.client.core.connection_options import Options
from hms.client.core.loop_driver import LoopDriver
from hms.client.core.requests import Requests, checked_addresses, new_link
from hms.client.core.service_data import Data
from hms.client.core.service_reply import Reply


class AsyncConnection:
    """For the tasks of one loop, any number of them; options: see
    hms.client.core.connection_options.Options."""

    def __init__(self, address: str | Sequence[str], **options: Any) -> None:
        addresses, chosen = checked_addresses(address), Options(**options)
        self.link = new_link(chosen)
        self.driver = LoopDriver(self.link, addresses, chosen)
        self.requests = Requests(self.driver, chosen)
        self.calls = Calls(self.requests)
        self.run, self.flush = self.driver.run, self.driver.flush

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Held around all that touches the link."""
        return self.driver.lock

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop in which it was opened; IllegalState when it never was."""
        return self.driver.event_loop

    @property
    def addresses(self) -> Sequence[str]:
        """Where it looks for the node, in this order."""
        return self.driver.loop.addresses

    @property
    def request_timeout_s(self) -> float:
        """How long an operation waits, also through an outage."""
        return self.requests.request_timeout_s

    @property
    def is_connected(self) -> bool:
        """Whether the node is reached right now."""
        return self.requests.is_connected

    @property
    def is_ended(self) -> bool:
        """Whether it is closed, or lost for good."""
        return self.requests.is_ended

    @property
    def client_id(self) -> str:
        """The client id that it was given, "" for none."""
        return self.link.hello.client_id

    @property
    def node_name(self) -> str:
        """The node's name, from its last WELCOME."""
        return self.link.welcome.node if self.link.welcome is not None else ""

    # ---- open and close

    async def open(self) -> Self:
        """Connect; ConnectionRefused after connect_timeout_s, or the node's own refusal."""
        if not self.driver.is_awaited:
            self.driver.enter_loop()
            await self.run(self.requests.opening())
        return self

    async def close(self) -> None:
        """Wait for running listeners and for the confirmation of what was sent, settle what was
        received, and disconnect; behind a listener that asks for it. Confirmations have as long as
        in threads: see hms.connect()'s close()."""
        await self._close(is_hasty=False)

    async def _close(self, *, is_hasty: bool) -> None:
        if self.driver.is_awaited:
            await self.run(self.requests.closing(is_hasty=is_hasty))

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, kind: object, *_trace: object) -> None:
        await self._close(is_hasty=kind is not None)

    async def renew(self, token: str) -> None:
        """Prove anew who this is before the login ends (EventKind.LOGIN_EXPIRES), by another token
        of the same user; what it may is looked at again. LoginRefused, LoginBusy."""
        await self.run(self.requests.renewing(token))

    async def administer(self, verb: str, arguments: dict[str, Any] | None = None) -> Any:
        """An operator's command, such as "queue.list"; returns plain data. One that changes
        something is not repeated when the connection is lost: ConnectionLost."""
        return await self.run(self.requests.administering(verb, arguments))

    def transaction(self, timeout_s: float = 0, wait: str = "completed") -> Any:
        """A block that is one global transaction: it commits at its end, or rolls back by a fault.

        timeout_s: after so long it can only be rolled back, 0 never; wait: "completed", or "logged"
        to go on as soon as the decision is durable. TransactionRolledBack, TxMixed, TxHazard.
        """
        return current_transaction.blocks().AsyncBlock(self, timeout_s, wait)

    async def call(self, service: str, data: Data = None, timeout_s: float | None = None) -> Reply:
        """Run a service and wait for its reply; timeout_s None: as long as the service or the node
        says. ServiceTimeout, ServiceNotFound, ServerLost, ServiceHung; ServiceFailedReply when the
        service itself fails, with its reply as attribute."""
        return await self.run(self.calls.asking_service(service, data, timeout_s))

    def call_async(
        self, service: str, data: Data = None, timeout_s: float | None = None
    ) -> "asyncio.Task[Reply]":
        """The same as a task: its reply can be awaited later."""
        return self.loop.create_task(self.call(service, data, timeout_s))
