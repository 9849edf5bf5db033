"""The application's modules in a server process: found on its own path first, loaded, begun."""

import importlib
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, TracebackType

from hms.errors.catalogue import ServiceModuleError
from hms.errors.tree import HmsError

__all__ = ["begin", "end", "load", "put_first"]

USER_PATH = "HMS_USER_PYTHONPATH"
"""The PYTHONPATH of what started the node or `hms serve`; ours alone holds until here."""

_IMPORTING = (
    __file__,
    importlib.__file__,
    "<frozen importlib._bootstrap>",
    "<frozen importlib._bootstrap_external>",
)
_LOGGER = logging.getLogger("tpmon.server")


def put_first(folders: Sequence[str | os.PathLike[str]]) -> None:
    """Put folders, then the user's PYTHONPATH, before all else that modules are looked for in.

    A folder of the application may be named like one of ours; processes that it starts find its
    modules too.
    """
    users = [part for part in os.environ.pop(USER_PATH, "").split(os.pathsep) if part]
    first = list(dict.fromkeys([*(str(Path(folder).absolute()) for folder in folders), *users]))
    sys.path[:] = first + [part for part in sys.path if part not in first]
    ours = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    if first or ours:
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*first, *ours]))
    importlib.invalidate_caches()


def load(names: Sequence[str]) -> list[ModuleType]:
    """Import modules by name; ServiceModuleError, or the HmsError that one of them raised."""
    return [_load(name) for name in names]


def begin(modules: Sequence[ModuleType]) -> None:
    """Call tpsvrinit() of those that have it; ServiceModuleError when it raises or returns -1."""
    for module in modules:
        hook = getattr(module, "tpsvrinit", None)
        if hook is None:
            continue
        try:
            code = hook()
        except Exception as fault:
            raise _error(module.__name__, f"tpsvrinit() raised {_said(fault)}") from fault
        if isinstance(code, int) and code < 0:
            raise _error(module.__name__, f"tpsvrinit() returned {code}")


def end(modules: Sequence[ModuleType]) -> None:
    """Call tpsvrdone() of those that have it, the last one first; what it raises is logged."""
    for module in reversed(modules):
        hook = getattr(module, "tpsvrdone", None)
        if hook is None:
            continue
        try:
            hook()
        except Exception:
            _LOGGER.exception("tpsvrdone() of %s failed", module.__name__)


def _load(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        wanted = (
            "a module is named as in an import, such as bar for bar.py, and found in python_path"
        )
        raise _error(name, wanted)
    try:
        return importlib.import_module(name)
    except HmsError:
        raise
    except (Exception, SystemExit) as fault:
        detail = _missing(fault, name)
        if detail:
            raise _error(name, detail) from None
        fault.__traceback__ = _own_part(fault.__traceback__)
        raise _error(name, _said(fault)) from fault


def _missing(fault: BaseException, name: str) -> str:
    """What to say when the module itself is missing, or a package of it, and not what it needs."""
    if not isinstance(fault, ModuleNotFoundError) or not f"{name}.".startswith(f"{fault.name}."):
        return ""
    where = Path(sys.path[0]).absolute()
    return f"there is no module {fault.name} in {where}, nor elsewhere on the path"


def _own_part(traceback: TracebackType | None) -> TracebackType | None:
    """From the application's first line on; how it came to be imported tells nobody anything."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename in _IMPORTING:
        traceback = traceback.tb_next
    return traceback


def _error(name: str, detail: str) -> ServiceModuleError:
    return ServiceModuleError(module=name, detail=detail)


def _said(fault: BaseException) -> str:
    return f"{type(fault).__name__}: {fault}"
