"""Failed input: what a service was given that failed at it, in its log, where `log_payloads` lets.

Without it no body and no value of a property is logged, whatever the level.
"""

import logging
import os
from collections.abc import Mapping
from typing import Any

from hms.client.core.log_lines import PAYLOADS_VARIABLE

__all__ = ["SHOWN_MAX", "shows_input", "tell_input"]

SHOWN_MAX = 1000
"""Characters of a line."""

_LOGGER = logging.getLogger("tpmon.server")


def shows_input() -> bool:
    """Whether the node lets it be told; decoding it is left out otherwise."""
    return os.environ.get(PAYLOADS_VARIABLE) == "1"


def tell_input(service: str, body: Any, properties: Mapping[str, Any]) -> None:
    """A line of its own: tracebacks that are equal stay so, whatever they were given."""
    said = _cut(repr(body[:SHOWN_MAX] if isinstance(body, str | bytes) else body))
    if properties:
        said += f", properties {_cut(repr(dict(properties)))}"
    _LOGGER.error("service %s was given: %s", service, said)


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"
