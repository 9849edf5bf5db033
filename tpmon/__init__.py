"""tpmon: the TP monitor's side of HMS. Clients call services, servers offer them.

The tp functions are Tmax's (X/Open XATMI), with its names and numbers: tpstart, tpcall, tpacall …
`Server`, `service` and `Request` are what an application server is made of. Each name is loaded
when it is first used, so that importing tpmon costs next to nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hms.client.core.conversation import *  # noqa: F403 - the same
    from hms.client.core.listener_outcomes import *  # noqa: F403 - the same
    from hms.client.core.service_reply import Reply as Reply
    from tpmon.buffers import *  # noqa: F403 - what __getattr__ finds, for type checkers
    from tpmon.calls import *  # noqa: F403 - the same
    from tpmon.constants import *  # noqa: F403 - the same
    from tpmon.context import gettperrno as gettperrno
    from tpmon.context import gettpurcode as gettpurcode
    from tpmon.conversations import *  # noqa: F403 - what __getattr__ finds
    from tpmon.environment import *  # noqa: F403 - the same
    from tpmon.event_functions import *  # noqa: F403 - the same
    from tpmon.server import *  # noqa: F403 - the same
    from tpmon.unsolicited_functions import *  # noqa: F403 - the same

_NAMES = {
    "tpmon.buffers": "tpalloc tpfree tprealloc tptypes",
    "tpmon.calls": "TPSTART_T TpReply tpacall tpcall tpcancel tpend tpget_timeout tpgetrply "
    "tpset_timeout tpstart tpstrerror",
    "tpmon.context": "gettperrno gettpurcode",
    "tpmon.conversations": "tpconnect tpdiscon tprecv tpsend",
    "tpmon.environment": "tmaxreadenv tpgetenv tpputenv",
    "tpmon.event_functions": "TPEVCTL tppost tpsubscribe tpsubscribe2 tpunsubscribe",
    "tpmon.unsolicited_functions": "tpbroadcast tpchkunsol tpclearunsol tpgetclid tpgetunsol "
    "tpnotify tpsendtocli tpsetunsol tpsetunsol_flag",
    "hms.client.core.service_reply": "Reply",
    "tpmon.server": "Request Server ServiceResult TPSVCINFO service tpadvertise tpforward tpreturn "
    "tpunadvertise",
    "hms.client.core.conversation": "Conversation",
    "hms.client.core.listener_outcomes": "Reject Retry",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}
"""Where each public name is; the constants, which import nothing, are looked up by their TP."""


def _public() -> list[str]:
    constants: list[str] = importlib.import_module("tpmon.constants").__all__
    return sorted([*_HOMES, *constants])


def _find(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    is_constant = name.startswith(("TP", "UNSOL_"))
    constants = importlib.import_module("tpmon.constants") if is_constant else None
    if constants is None or name not in constants.__all__:
        raise AttributeError(f"module 'tpmon' has no attribute {name!r}")
    return getattr(constants, name)


def __getattr__(name: str) -> Any:
    """A public name, from the module that has it."""
    if name == "__all__":
        return _public()
    value = globals()[name] = _find(name)
    return value


def __dir__() -> list[str]:
    return _public()
