"""The resource managers of the node's configuration: told to clients, watched by recovery.

The node opens none of them: a database that does not answer must not hold it up. A process of its
own looks for branches in doubt and reports what waits and why.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hms.errors.catalogue import InvalidArgument
from hms.wire import operations as ops

__all__ = ["RESOURCE_OPERATIONS", "ResourceManagers"]

RESOURCE_OPERATIONS = ("resource.list", "resource.report")


class ResourceManagers:
    """definitions: name, kind, open, password (where the secret is) of each [rm.NAME]."""

    def __init__(
        self, definitions: Sequence[Mapping[str, Any]] = (), interval_s: float = 0
    ) -> None:
        self._definitions = [dict(one) for one in definitions]
        self._interval_s = interval_s
        self._report: dict[str, Any] = {}

    def operate(self, verb: str, asked: ops.Operation) -> Any:
        """Plain data; InvalidArgument for a report that cannot be read."""
        if verb == "resource.list":
            return {"resources": self._definitions, "interval_s": self._interval_s}
        assert isinstance(asked, ops.ReportResources)
        if len(asked.report) > ops.REPORT_BYTES_MAX:
            raise InvalidArgument(what=verb, detail="it takes a report, as JSON")
        self._report = _read_report(verb, asked.report)
        return None

    def describe(self) -> dict[str, Any]:
        """For `status`: what recovery last said; nothing without resource managers."""
        return {"recovery": self._report} if self._definitions else {}


def _read_report(verb: str, text: str) -> dict[str, Any]:
    """A report that every status can carry: large integers, NaN and deep nesting cannot be told."""
    try:
        report = msgspec.json.decode(text, type=dict[str, Any])
        if len(msgspec.msgpack.encode(report)) > ops.REPORT_BYTES_MAX:
            raise InvalidArgument(
                what=verb, detail=f"it takes {ops.REPORT_BYTES_MAX} bytes at most"
            )
    except (msgspec.MsgspecError, OverflowError, RecursionError, UnicodeError) as fault:
        raise InvalidArgument(what=verb, detail=f"the report cannot be read: {fault}") from fault
    return report
