"""tpmon.xa: the XA side of distributed transactions: xids, codes, resource managers, adapters.

Each name is loaded when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hms.wire.xa_constants import *  # noqa: F403 - what __getattr__ finds
    from hms.wire.xid import Xid as Xid
    from tpmon.xa.conformance import BEHAVIOURS as BEHAVIOURS
    from tpmon.xa.conformance import Behaviour as Behaviour
    from tpmon.xa.conformance import Bench as Bench
    from tpmon.xa.kit import DatabaseResource as DatabaseResource
    from tpmon.xa.kit import Driver as Driver
    from tpmon.xa.resource import ResourceManager as ResourceManager

_HOMES = {
    "BEHAVIOURS": "tpmon.xa.conformance",
    "Behaviour": "tpmon.xa.conformance",
    "Bench": "tpmon.xa.conformance",
    "DatabaseResource": "tpmon.xa.kit",
    "Driver": "tpmon.xa.kit",
    "ResourceManager": "tpmon.xa.resource",
    "Xid": "hms.wire.xid",
}
_CONSTANTS = "hms.wire.xa_constants"


def _find(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    constants = importlib.import_module(_CONSTANTS)
    if name not in constants.__all__:
        raise AttributeError(f"module 'tpmon.xa' has no attribute {name!r}")
    return getattr(constants, name)


def _public() -> list[str]:
    return sorted([*_HOMES, *importlib.import_module(_CONSTANTS).__all__])


def __getattr__(name: str) -> Any:
    """A public name, from the module that has it."""
    if name == "__all__":
        return _public()
    if name.startswith("_"):
        raise AttributeError(f"module 'tpmon.xa' has no attribute {name!r}")
    value = globals()[name] = _find(name)
    return value


def __dir__() -> list[str]:
    return _public()
