"""The resource managers of the node's configuration: told to clients, watched by recovery.

The node opens none of them: a database that does not answer must not hold it up. A process of its
own looks for branches in doubt and reports what waits and why.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from field_buffer.catalogue import InvalidArgument

__all__ = ["RESOURCE_VERBS", "Resources"]

RESOURCE_VERBS = ("resource.list", "resource.report")
REPORT_BYTES_MAX = 48 << 10


class Resources:
    """definitions: name, kind, open, password (where the secret is) of each [rm.NAME]."""

    def __init__(
        self, definitions: Sequence[Mapping[str, Any]] = (), interval_s: float = 0
    ) -> None:
        self._definitions = [dict(one) for one in definitions]
        self._interval_s = interval_s
        self._report: dict[str, Any] = {}

    def operate(self, verb: str, arguments: Mapping[str, Any]) -> Any:
        """Plain data; InvalidArgument for a report that cannot be read."""
        if verb == "resource.list":
            return {"resources": self._definitions, "interval_s": self._interval_s}
        text = arguments.get("report")
        if not isinstance(text, str) or len(text) > REPORT_BYTES_MAX:
            raise InvalidArgument(what=verb, detail="it takes a report, as JSON")
        try:
            self._report = msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.MsgspecError as fault:
            raise InvalidArgument(what=verb, detail=f"the report is no JSON: {fault}") from fault
        return None

    def describe(self) -> dict[str, Any]:
        """For `status`: what recovery last said; nothing without resource managers."""
        return {"recovery": self._report} if self._definitions else {}
