"""The pytest fixtures that `pip install hybrid-messaging` brings: hms_node and hms_connection."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from hms.client.connection import Connection
    from hms.testing.nodes import TestNode


@pytest.fixture
def hms_node(tmp_path: Path) -> Iterator["TestNode"]:
    """A node of the sample configuration with a store of its own, gone after the test."""
    from hms.testing import node  # noqa: PLC0415 - an application's tests may not need a node

    with node(store=tmp_path / "store") as running:
        yield running


@pytest.fixture
def hms_connection(hms_node: "TestNode") -> Iterator["Connection"]:
    """A connection to hms_node."""
    import hms  # noqa: PLC0415

    with hms.connect(hms_node.address) as connection:
        yield connection
