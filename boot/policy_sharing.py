"""The security file of a node in a cluster: what it holds is told to the others over encrypted
links, and what another node has newer takes its place."""

import logging
from collections.abc import Callable
from pathlib import Path

from hms.boot.security_file import read_security, replace_security, security_text
from hms.engine.cluster.cluster import Cluster
from hms.engine.cluster.cluster_messages import POLICY_BYTES_MAX, Policy
from hms.engine.effects import Effects
from hms.errors.catalogue import SecurityFileError
from hms.server.logins.security_document import SecurityDocument

__all__ = ["PolicySharing"]

log = logging.getLogger("hms.security")


class PolicySharing:
    """index: of this node. change: has something done under the engine's lock."""

    def __init__(self, path: Path, cluster: Cluster, index: int) -> None:
        self._path, self._cluster, self._index = path, cluster, index
        self._told: SecurityDocument | None = None
        self._taken: Policy | None = None
        """What was taken from another node last."""
        self.rejected = ""
        """Why what another node has newer is not taken."""

    def differs(self) -> str:
        """Which nodes that are up hold another policy; "" none."""
        policy, peers = self._cluster.policy, self._cluster.peers.values()
        names = sorted(peer.name for peer in peers if peer.is_up and policy.differs(peer.index))
        return f"{', '.join(names)} hold another policy" if names else ""

    def is_first(self) -> bool:
        """Whether this node writes what somebody has to, without an order: it has the lowest index
        of all, and all are up and hold the same."""
        peers = self._cluster.peers.values()
        is_lowest = all(self._index < peer.index for peer in peers)
        return is_lowest and all(peer.is_up for peer in peers) and not self.differs()

    def look(
        self, held: SecurityDocument, change: Callable[[Callable[[Effects, int], None]], None]
    ) -> None:
        """Tell what holds here when it is another one, and take what is newer elsewhere; the file
        is read as ever then."""
        if held != self._told:
            self._told = held
            self._tell(held, change)
        heard, self._cluster.policy.heard = self._cluster.policy.heard, None
        if heard is not None:
            self._take(heard)

    def _tell(
        self, held: SecurityDocument, change: Callable[[Callable[[Effects, int], None]], None]
    ) -> None:
        text, taken = security_text(held), self._taken
        if len(text.encode()) > POLICY_BYTES_MAX:
            log.error("%s is too large to be told to other nodes", self._path)
            return
        is_theirs = taken is not None and taken.text == text
        policy = Policy(held.version, taken.node if is_theirs and taken else self._index, text)
        change(lambda fx, _now_ms: self._cluster.tell_policy(policy, fx))

    def _take(self, heard: Policy) -> None:
        try:
            document = read_security(self._path, heard.text)
            replace_security(self._path, document)
        except SecurityFileError as error:
            log.error("policy version %d of another node is not taken: %s", heard.version, error)  # noqa: TRY400 - it says all
            self.rejected = f"version {heard.version} of another node: {error}"
            return
        self._taken, self.rejected = heard, ""
        log.info("policy version %d comes from another node", heard.version)
