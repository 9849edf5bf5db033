"""Browser: the waiting messages of a queue, page by page, none of them consumed (F-G1)."""

from collections.abc import AsyncIterator, Generator
from typing import Any, Self

from hms.client.browse_pages import BrowsePages
from hms.client.core.loop_driver import LoopDriver
from hms.client.destinations import Queue
from hms.client.message import Message
from hms.client.public_names import public_names


class Browser:
    """See Session.browser(). Iterating begins anew each time and sees what waits at that moment."""

    def __init__(self, driver: LoopDriver, pages: BrowsePages) -> None:
        self._driver = driver
        self._pages = pages
        self._pass: AsyncIterator[Message] | None = None

    @property
    def queue(self) -> Queue:
        """The queue that is looked at."""
        return self._pages.queue

    @property
    def selector(self) -> str:
        """Its selector, empty for none."""
        return self._pages.selector

    async def _granted(self) -> Self:
        await self._driver.run(self._pages.granted())
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        return self._granted().__await__()

    async def __aiter__(self) -> AsyncIterator[Message]:
        page = await self._driver.run(self._pages.first())
        while True:
            messages, position = page
            for message in messages:
                self._pages.check_open()
                yield message
            if not position:
                return
            page = await self._driver.run(self._pages.after(position))

    async def next_message(self) -> Message | None:
        """The next message of one pass over the queue, or None at its end."""
        if self._pass is None:
            self._pass = aiter(self)
        return await anext(self._pass, None)

    async def close(self) -> None:
        """Nothing is held at the node; only forbids further pages."""
        self._pages.close()

    async def __aenter__(self) -> Self:
        return await self._granted()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def __dir__(self) -> list[str]:
        return public_names(self)
