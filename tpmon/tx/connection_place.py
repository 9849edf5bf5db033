"""Where the transactions of a connection live: the node's log, and what [rm.NAME] tells of."""

import asyncio
import inspect
import threading
import weakref
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from hms.client.core.pending_requests import OnLoss, Pending
from hms.errors.catalogue import NotSupported, ResourceUnknown
from tpmon.tx.coordinator_identity import identity_of
from tpmon.tx.decision_log import NodeLog
from tpmon.xa.resource import ResourceManager
from tpmon.xa.resource_opening import Definition, open_resource

if TYPE_CHECKING:
    from hms.client.core.requests import AnyConnection

__all__ = ["HMS", "LIST_VERB", "NodePlace", "definitions_of", "place_of"]

HMS = "hms"
"""The node itself, as a resource manager."""
LIST_VERB = "resource.list"
LATER_S = 0.005
"""So long what nobody waits for is held back for the next frame to take it along."""

_places: "weakref.WeakKeyDictionary[AnyConnection, NodePlace]" = weakref.WeakKeyDictionary()
_identities: "weakref.WeakKeyDictionary[Any, tuple[Any, int]]" = weakref.WeakKeyDictionary()
"""Of the logs behind other connections, by link, since a WELCOME."""
_lock = threading.Lock()


def place_of(connection: "AnyConnection") -> "NodePlace":
    """That of a connection, for threads or for asyncio."""
    with _lock:
        place = _places.get(connection)
        if place is None:
            place = _places[connection] = NodePlace(connection)
        return place


class Blocking:
    """A connection whatever its shell, asked from a thread that may wait."""

    def __init__(self, connection: "AnyConnection") -> None:
        self._connection: Any = weakref.proxy(connection)
        self._is_async = hasattr(type(connection), "loop")

    @property
    def log_id(self) -> bytes | None:
        """The log of the node that answered last."""
        known: bytes | None = self._connection.link.log
        return known

    def request(self, request: Any) -> Any:
        """The reply's data, or what the node answered."""
        return self.run(self._connection.requests.asking(request))

    def request_of(self, log_id: bytes | None, request: Any) -> Any:
        """The same, of the node that writes that log and of no other."""
        return self.run(self._connection.requests.asking_log(request, log_id))

    def tell(self, request: Any) -> None:
        """Ask without waiting for the answer; what comes later is applied behind it."""
        if self._is_async:
            self.request(request)
            return
        with self._connection.lock:
            pending = Pending(type(request).__name__, OnLoss.DONE)
            self._connection.link.request(request, pending)
            self._connection.flush()

    def tell_later(self, request: Any) -> None:
        """The same with the next frame of the connection, LATER_S from now at the latest: it costs
        the node no wake-up of its own."""
        if self._is_async:
            self.request(request)
            return
        asking = self._connection
        with asking.lock:
            asking.link.request(request, Pending(type(request).__name__, OnLoss.DONE))
            asking.driver.come_by(monotonic() + LATER_S)

    def ask_ahead(self, log_id: bytes | None, request: Any) -> Callable[[], object]:
        """Ask the node that writes that log now, and wait for the answer when the returned function
        is called."""
        if self._is_async:
            self.request_of(log_id, request)
            return lambda: None
        asking = self._connection
        with asking.lock:
            pending = asking.requests.for_log(request, log_id)
            asking.link.request(request, pending)
            asking.flush()

        def answer() -> object:
            if pending.is_done:
                return pending.checked()
            return self.run(asking.requests.answer_to(pending))

        return answer

    def administer(self, verb: str, arguments: dict[str, Any] | None = None) -> Any:
        """An operator's command."""
        return self.run(self._connection.requests.administering(verb, arguments))

    def open_xa_session(self) -> Any:
        """A session that can work in branches, for one thread."""
        if self._is_async:
            detail = "with asyncio open a session(xa=True) and enlist it"
            raise NotSupported(feature="rm('hms')", instead=detail)
        from hms.client.session import open_session  # noqa: PLC0415 - only who has HMS branches

        return open_session(self._connection, is_xa=True)

    def __getattr__(self, name: str) -> Any:
        """The steps of an operation are the connection's; run() drives them."""
        return getattr(self._connection, name)

    def run(self, steps: Any) -> Any:
        """Drive an operation to its end."""
        running = self._connection.run(steps)
        if not self._is_async:
            return running
        return asyncio.run_coroutine_threadsafe(running, self._connection.loop).result()


class NodePlace:
    """See the module; every function may block."""

    def __init__(self, connection: "AnyConnection") -> None:
        self.blocking = Blocking(connection)
        self._log: NodeLog | None = None
        self._definitions: dict[str, Definition] = {}
        self._hms: ResourceManager | None = None
        self._session = threading.local()
        self._of_tasks: weakref.WeakKeyDictionary[Any, ResourceManager] = (
            weakref.WeakKeyDictionary()
        )
        """Sessions of asyncio, as threads use them."""

    @property
    def log(self) -> NodeLog:
        """The node's; another one's when the connection goes on at another node."""
        known = self._log
        while known is None or known.log_id != self.blocking.log_id:
            log_id = self.blocking.log_id
            known = NodeLog(self.blocking, identity_of(self.blocking), log_id)
        self._log = known
        return known

    @property
    def link(self) -> Any:
        """That of the connection."""
        return self.blocking.link

    def resource(self, name: str) -> ResourceManager:
        """The resource manager of that name; ResourceUnknown, ResourceUnavailable."""
        if name == HMS:
            return self._of_node()
        if name not in self._definitions:
            self._definitions = definitions_of(self.blocking)
        if name not in self._definitions:
            raise ResourceUnknown(resource=name)
        return open_resource(self._definitions[name])

    def working(self, name: str) -> ResourceManager:
        """The same to work with: for "hms" the XA session of this thread."""
        if name != HMS:
            return self.resource(name)
        session = getattr(self._session, "of_thread", None)
        if session is None or session.state.is_closed:
            session = self._session.of_thread = self.blocking.open_xa_session()
        return self.usable(session)

    def usable(self, resource: Any) -> ResourceManager:
        """The resource manager of an XA session, or what is one already, for threads."""
        rm: Any = getattr(resource, "resource", resource)
        if not inspect.iscoroutinefunction(rm.xa_start):
            known: ResourceManager = rm
            return known
        if resource not in self._of_tasks:
            is_ours = resource.connection.link is self.link
            blocking = self.blocking if is_ours else Blocking(resource.connection)
            self._of_tasks[resource] = _hms_resource(blocking, resource)
        return self._of_tasks[resource]

    def is_of_the_log(self, rm: ResourceManager) -> bool:
        """Whether it is a session, or the completing part, of this very node.

        Two brokers may have one name; their logs differ in the number that gtrids begin with.
        """
        node_uid, welcome = getattr(rm, "node_uid", None), self.blocking.link.welcome
        if node_uid is None or welcome is None or node_uid != welcome.node_uid:
            return False
        node: Any = rm
        if node.node.link is self.link:
            return True
        with _lock:
            known = _identities.get(node.node.link)
        if known is None or known[0] is not node.node.link.welcome:
            known = node.node.link.welcome, identity_of(_blocking(node.node))
            with _lock:
                _identities[node.node.link] = known
        return bool(known[1] == self.log.node_uid)

    def _of_node(self) -> ResourceManager:
        if self._hms is None:
            self._hms = _hms_resource(self.blocking)
        return self._hms


def _blocking(connection: Any) -> Blocking:
    return connection if isinstance(connection, Blocking) else Blocking(connection)


def _hms_resource(blocking: Blocking, session: Any = None) -> ResourceManager:
    from hms.client.xa_resource import HmsResource  # noqa: PLC0415 - only who has HMS branches

    made: ResourceManager = HmsResource(blocking, session)
    return made


def definitions_of(blocking: Blocking) -> dict[str, Definition]:
    """What [rm.NAME] of the node's configuration tells."""
    told = blocking.administer(LIST_VERB)
    return {one["name"]: Definition(**one) for one in told["resources"]}
