"""Heads of the audits of a cluster: each node tells its own to the others, and what it remembers of
theirs.

So a node whose store was replaced by an older copy hears that its audit once had later records. The
others remember as long as they run; an anchor that is kept elsewhere (hms audit anchor) for ever.
A node that is asked to verify its audit does so beside the engine (boot/audit_checks.py); question
and answer lie here until it looks.
"""

from hms.engine.cluster.cluster_messages import AuditAsk, AuditHead, AuditTold
from hms.engine.log.audit_chain import AuditChain

__all__ = ["AuditHeads"]


class AuditHeads:
    """of: number and hash of the last record of each node; broken: why the audit of this node is
    not the one that another node remembers, "" when it is."""

    def __init__(self, own: AuditChain) -> None:
        self._own = own
        self.of: dict[int, tuple[int, bytes]] = {}
        self.claims: dict[int, tuple[int, bytes]] = {}
        """What each node remembers of this one."""
        self.questions: dict[int, AuditAsk] = {}
        """The last one of each node that has no answer."""
        self.verdicts: dict[int, AuditTold] = {}
        """The last one of each node."""
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
        if word.known_number:
            self.claims[index] = word.known_number, word.known_head
        fault = self._own.differs(word.known_number, word.known_head)
        if fault and not self.broken:
            self.broken = f"node {name} knows {fault}; hms audit verify --cluster tells all"

    def question(self, index: int, number: int) -> AuditAsk:
        """What a node is asked to verify its audit with."""
        return AuditAsk(number, *self.of.get(index, (0, b"")))
