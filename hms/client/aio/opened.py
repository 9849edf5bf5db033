"""What is opened at the node: it can be used at once, and awaited."""

from collections.abc import Generator
from types import TracebackType
from typing import Any, Self

from hms.client.core.loop_driver import LoopDriver
from hms.client.core.requests import Requests
from hms.client.opening_steps import Opening


class Opened:
    """`x = await make()`, or `async with make() as x`, waits until the node has granted it and
    raises what the node refused it with. Without, it is used before that: then the refusal is
    raised by what is done with it."""

    _driver: LoopDriver
    _requests: Requests
    _opening: Opening

    async def _granted(self) -> Self:
        await self._driver.run(self._opening.granted(self._requests))
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        return self._granted().__await__()

    async def __aenter__(self) -> Self:
        return await self._granted()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close it."""
        raise NotImplementedError
