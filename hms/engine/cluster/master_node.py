"""The configuration master: one node, if one is declared, at which destinations are made (F-J10).

It decides who may give a command, not what becomes of it: the change travels as any other
(directory.py), also to nodes that hear of it while the master is away. What a client makes for
itself, and pausing, which is operation, do not need the master; no message does.
"""

from hms.engine.cluster.cluster_settings import ClusterSettings
from hms.engine.flow.destination_control import Lifetime
from hms.engine.state import State
from hms.errors.catalogue import NotConfigMaster
from hms.errors.tree import HmsError
from hms.wire.operations import Operation

CHANGES = frozenset(
    f"{kind}.{verb}" for kind in ("queue", "topic") for verb in ("create", "alter", "delete")
)
_SHARED = (Lifetime.CREATED, Lifetime.CONFIGURED)


def check_master(state: State, settings: ClusterSettings, verb: str, arguments: Operation) -> None:
    """NotConfigMaster for a change that only another node may make."""
    if settings.is_config_master or verb not in CHANGES:
        return
    kind, _, what = verb.partition(".")
    name = getattr(arguments, "name", "")
    if not _is_own(state, kind, what, name, arguments):
        raise NotConfigMaster(kind=kind, destination=name, what=what, master=settings.config_master)


def _is_own(state: State, kind: str, what: str, name: str, arguments: Operation) -> bool:
    """Whether it concerns a client's own destination, of which other nodes hear nothing."""
    if what == "create":
        return getattr(arguments, "life", "") == Lifetime.DYNAMIC.value
    try:
        return state.destination(kind, name).control.life not in _SHARED
    except HmsError:
        return False
