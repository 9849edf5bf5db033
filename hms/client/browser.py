"""Browser: the waiting messages of a queue, page by page, none of them consumed (F-G1)."""

from collections.abc import Iterator
from typing import Self

from hms.client.browse_pages import BrowsePages
from hms.client.core.thread_driver import ThreadDriver
from hms.client.destinations import Queue
from hms.client.message import Message
from hms.client.public_names import public_names


class Browser:
    """See Session.browser(). Iterating begins anew each time and sees what waits at that moment."""

    def __init__(self, driver: ThreadDriver, pages: BrowsePages) -> None:
        self._driver = driver
        self._pages = pages
        self._pass: Iterator[Message] | None = None

    def __enter__(self) -> Self:
        return self

    # ---- as in asyncio; made by scripts/generate-client

    @property
    def queue(self) -> Queue:
        """The queue that is looked at."""
        return self._pages.queue

    @property
    def selector(self) -> str:
        """Its selector, empty for none."""
        return self._pages.selector

    def __iter__(self) -> Iterator[Message]:
        page = self._driver.run(self._pages.first())
        while True:
            messages, position = page
            for message in messages:
                self._pages.check_open()
                yield message
            if not position:
                return
            page = self._driver.run(self._pages.after(position))

    def next_message(self) -> Message | None:
        """The next message of one pass over the queue, or None at its end."""
        if self._pass is None:
            self._pass = iter(self)
        return next(self._pass, None)

    def close(self) -> None:
        """Nothing is held at the node; only forbids further pages."""
        self._pages.close()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __dir__(self) -> list[str]:
        return public_names(self)

    # ---- end of what is made
