"""An arbiter for the demonstration: the etcd that is named, or one of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hms.testing import TestEtcd

__all__ = ["arbiter"]


@contextmanager
def arbiter(folder: Path, given: str | None) -> Iterator[str]:
    """The address of an etcd. ArbiterUnavailable where none is named and none is installed."""
    if given is not None:
        yield given
        return
    made = TestEtcd(folder)
    try:
        made.start()
        yield made.url
    finally:
        made.stop()
