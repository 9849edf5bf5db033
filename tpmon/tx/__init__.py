"""tpmon.tx: distributed transactions: X/Open's tx functions, and blocks and decorators.

    tx_begin()
    hms.rm("bank").execute("UPDATE …")
    tx_commit()

Each name is loaded when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tpmon.tx.blocks import rm as rm
    from tpmon.tx.blocks import transactional as transactional
    from tpmon.tx.codes import *  # noqa: F403 - what __getattr__ finds
    from tpmon.tx.functions import *  # noqa: F403 - the same
    from tpmon.tx.transaction import Transaction as Transaction

_HOMES = {
    "Transaction": "tpmon.tx.transaction",
    "rm": "tpmon.tx.blocks",
    "transactional": "tpmon.tx.blocks",
}
_WHOLE = ("tpmon.tx.codes", "tpmon.tx.functions")


def _public() -> list[str]:
    names = set(_HOMES)
    for home in _WHOLE:
        names.update(importlib.import_module(home).__all__)
    return sorted(names)


def _find(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    for home in _WHOLE:
        module = importlib.import_module(home)
        if name in module.__all__:
            return getattr(module, name)
    raise AttributeError(f"module 'tpmon.tx' has no attribute {name!r}")


def __getattr__(name: str) -> Any:
    """A public name, from the module that has it."""
    if name == "__all__":
        return _public()
    if name.startswith("_"):
        raise AttributeError(f"module 'tpmon.tx' has no attribute {name!r}")
    value = globals()[name] = _find(name)
    return value


def __dir__() -> list[str]:
    return _public()
