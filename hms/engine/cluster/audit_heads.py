"""Heads of the audits of a cluster: each node tells its own to the others, and what it remembers of
theirs.

So a node whose store was replaced by an older copy hears that its audit once had later records. A
head is remembered until the node has shown that its chain still has that record: a later number
alone proves nothing, since an older copy that was written on has one, too. Who shows another
record, tells two of one number, or goes back, is doubted here as well. The others remember as long
as they run; an anchor that is kept elsewhere (hms audit anchor) for ever. A node that is asked to
verify its audit does so beside the engine (boot/audit_checks.py); question and answer lie here
until it looks.
"""

from hms.engine.cluster.cluster_messages import HEADS_MAX, AuditAsk, AuditHead, AuditTold
from hms.engine.log.audit_chain import AuditChain

__all__ = ["AuditHeads"]


class AuditHeads:
    """of: number and hash of the highest record of each node; broken: why the audit of this node is
    not the one that another node remembers; doubted: why that of another node is not the one that
    it was; "" when it is."""

    def __init__(self, own: AuditChain) -> None:
        self._own = own
        self.of: dict[int, tuple[int, bytes]] = {}
        self._kept: dict[int, dict[int, bytes]] = {}
        """Of each node the records that it told and has not shown since, the first told first."""
        self.claims: dict[int, dict[int, bytes]] = {}
        """What each node remembers of this one, the latest last."""
        self.questions: dict[int, AuditAsk] = {}
        """The last one of each node that has no answer."""
        self.verdicts: dict[int, AuditTold] = {}
        """The last one of each node."""
        self.broken = self.doubted = ""
        self._told = 0
        """The number of the last head that all were told."""
        self._is_news = False
        """Something else is to be told."""

    def words(self, index: int) -> list[AuditHead]:
        """For a node, one for each record that is remembered of it; none while neither side has an
        audit."""
        own, kept = self._own, self._kept.get(index, {})
        if not (own.number or kept):
            return []
        claimed = self.claims.get(index, {})
        shown = tuple((n, head) for n in claimed if (head := own.hash_of(n)) is not None)
        known = list(kept.items()) or [(0, b"")]
        return [AuditHead(own.number, own.head, *one, shown) for one in known]

    def is_news(self) -> bool:
        """Whether this node has another head, remembers one more of another node, or is asked for
        one more of its own, than when this was asked."""
        was, self._told = self._told, self._own.number
        is_news, self._is_news = self._is_news, False
        return is_news or was != self._told

    def told(self, index: int, name: str, word: AuditHead) -> None:
        """What a node says. One that goes back, or has another record of a number than it had, is
        told so with the next word."""
        self._remember(index, name, word)
        kept = self._kept[index]
        for number, head in word.shown:
            if kept.get(number, head) != head:
                self._doubt(f"node {name} has another record {number} in its audit than it told")
            elif number in kept and number not in (max(kept), word.number):
                del kept[number]
        self._compare(index, name, word)

    def _remember(self, index: int, name: str, word: AuditHead) -> None:
        """What is known of a number is not forgotten for another record of it; of many records the
        first ones go that are neither the very first, nor the highest, nor told now."""
        kept = self._kept.setdefault(index, {})
        number, highest = word.number, max(kept, default=0)
        if number < highest:
            self._doubt(
                f"node {name} told record {highest} of its audit, which ends with record {number}"
            )
        if number and kept.setdefault(number, word.head) != word.head:
            self._doubt(f"node {name} told two records {number} of its audit")
        if number > self.of.get(index, (0, b""))[0]:
            self.of[index] = number, word.head
            self._is_news = True
        first, top = next(iter(kept), 0), max(kept, default=0)
        between = [n for n in kept if n not in (first, top, number)]
        for one in between[: max(0, len(kept) - HEADS_MAX)]:
            del kept[one]

    def _compare(self, index: int, name: str, word: AuditHead) -> None:
        """What a node remembers of this one."""
        number, head = word.known_number, word.known_head
        if number:
            claimed = self.claims.setdefault(index, {})
            self._is_news = self._is_news or number not in claimed
            claimed.pop(number, None)
            claimed[number] = head
            while len(claimed) > HEADS_MAX:
                del claimed[next(iter(claimed))]
        fault = self._own.differs(number, head)
        if fault and not self.broken:
            self.broken = f"node {name} knows {fault}; hms audit verify --cluster tells all"

    def _doubt(self, why: str) -> None:
        self.doubted = self.doubted or f"{why}; hms audit verify --cluster tells all"

    def question(self, index: int, number: int) -> AuditAsk:
        """What a node is asked to verify its audit with: the first record that it has not shown."""
        return AuditAsk(number, *next(iter(self._kept.get(index, {}).items()), (0, b"")))
