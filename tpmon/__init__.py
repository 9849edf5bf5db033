"""tpmon: the TP monitor's side of HMS. Clients call services, servers offer them.

The tp functions are Tmax's (X/Open XATMI), with its names and numbers: tpstart, tpcall, tpacall …
`Server`, `service` and `Request` are what an application server is made of. Each name is loaded
when it is first used, so that importing tpmon costs next to nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tpmon.calls import *  # noqa: F403 - what __getattr__ finds, for type checkers
    from tpmon.constants import *  # noqa: F403 - the same
    from tpmon.context import gettperrno as gettperrno
    from tpmon.context import gettpurcode as gettpurcode
    from tpmon.environment import *  # noqa: F403 - what __getattr__ finds
    from tpmon.server import *  # noqa: F403 - the same
    from tpmon.unsupported import *  # noqa: F403 - the same

_HOMES = (
    "tpmon.constants",
    "tpmon.environment",
    "tpmon.context",
    "tpmon.calls",
    "tpmon.unsupported",
    "tpmon.server",
)


def _public() -> list[str]:
    return sorted({name for home in _HOMES for name in importlib.import_module(home).__all__})


def __getattr__(name: str) -> Any:
    """A public name, from the module that has it."""
    if name == "__all__":
        return _public()
    if not name.startswith("_"):
        for home in _HOMES:
            module = importlib.import_module(home)
            if name in module.__all__:
                value = globals()[name] = getattr(module, name)
                return value
    raise AttributeError(f"module 'tpmon' has no attribute {name!r}")


def __dir__() -> list[str]:
    return _public()
