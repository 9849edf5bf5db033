"""The service of a peer: `python -m bench.peers.echo MODULE:CLASS ADDRESS OPTIONS`.

It prints "ready" when it listens, and answers each request with its body until it is killed.
"""

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

__all__ = ["Answering", "main"]


class Answering(Protocol):
    """A driver that can be the service, too."""

    def answer(self, ready: Callable[[], object]) -> None:
        """Connect, say that it is ready, and answer for ever."""


def main(words: Sequence[str]) -> None:
    """Answer until killed."""
    name, address, options = words
    module, _, kind = name.partition(":")
    made = getattr(importlib.import_module(module), kind)
    driver: Answering = made(address, msgspec.json.decode(options, type=dict[str, str]))
    driver.answer(lambda: print("ready", flush=True))


if __name__ == "__main__":
    main(sys.argv[1:])
