"""Heads of the audits of a cluster: each node tells its own to the others, and what it remembers of
theirs.

So a node whose store was replaced by an older copy hears that its audit once had later records. The
others remember as long as they run; an anchor that is kept elsewhere (hms audit anchor) for ever.
"""

from hms.engine.cluster.cluster_messages import AuditHead
from hms.engine.log.audit_chain import AuditChain

__all__ = ["AuditHeads"]


class AuditHeads:
    """of: number and hash of the last record of each node; broken: why the audit of this node is
    not the one that another node remembers, "" when it is."""

    def __init__(self, own: AuditChain) -> None:
        self._own = own
        self.of: dict[int, tuple[int, bytes]] = {}
        self.broken = ""
        self._told = 0
        """The number of the last head that all were told."""

    def words(self, index: int) -> list[AuditHead]:
        """For a node: none while neither side has an audit."""
        number, head = self.of.get(index, (0, b""))
        if not (self._own.number or number):
            return []
        return [AuditHead(self._own.number, self._own.head, number, head)]

    def is_news(self) -> bool:
        """Whether this node has another head than when this was asked."""
        was, self._told = self._told, self._own.number
        return was != self._told

    def told(self, index: int, name: str, word: AuditHead) -> None:
        """What a node says. The latest that it ever said is remembered: one that goes back, or
        tells another record of the same number, is told so with the next word."""
        if word.number > self.of.get(index, (0, b""))[0]:
            self.of[index] = word.number, word.head
        fault = self._own.differs(word.known_number, word.known_head)
        if fault and not self.broken:
            self.broken = f"node {name} knows {fault}; hms audit verify --anchor tells all"
