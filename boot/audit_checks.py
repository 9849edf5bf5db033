"""The audits of a cluster, each verified by its own node in a process of its own, beside what the
other nodes remember of it: hms audit verify --cluster.

A node that is asked, by an operator or over a link, verifies once for all who ask meanwhile.
"""

import json
import logging
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from hms.boot.entries import Config, Node
from hms.engine.cluster.cluster import Cluster
from hms.engine.cluster.cluster_messages import AuditAsk, AuditTold
from hms.engine.effects import Effects
from hms.errors.catalogue import NotInCluster
from hms.server.node_operations import Later

__all__ = ["AuditChecks", "verify_command"]

log = logging.getLogger("hms.security")

WHY_MAX = 1000
NO_ANSWER = "it does not answer"
Change = Callable[[Callable[[Effects, int], None]], None]


class AuditChecks:
    """name: of this node; command: what verifies its audit, anchors come behind it; cluster: None
    for a node that is alone. look() is called every second by one thread."""

    def __init__(self, name: str, command: Sequence[str], cluster: Cluster | None) -> None:
        self._name, self._command, self._cluster = name, command, cluster
        self._asked: deque[tuple[int, Later]] = deque()
        """Until when who waits, and is not answered."""
        self._number = 0
        """Of the question that is out, 0 for none."""
        self._process: subprocess.Popen[str] | None = None
        self._for: tuple[int, dict[int, AuditAsk]] = (0, {})
        """The questions that it answers: those that were there when it began."""
        self._own: AuditTold | None = None

    def begin(self, until_ms: int) -> Later:
        """The other nodes are asked at the next look; under the engine's lock. NotInCluster."""
        if self._cluster is None:
            raise NotInCluster(what="audit verify --cluster")
        later = Later()
        self._asked.append((until_ms, later))
        return later

    def look(self, now_ms: int, change: Change, answer: Callable[[Later, Any], None]) -> None:
        """Begin what is asked for, answer what is found."""
        cluster = self._cluster
        if cluster is None:
            return
        if self._asked and not self._number:
            self._number, self._own = now_ms, None
            change(lambda fx, _: cluster.ask_audits(self._number, fx))
        is_wanted = cluster.audits.questions or (self._number and self._own is None)
        if self._process is None and is_wanted:
            self._verify(cluster)
        elif self._process is not None and self._process.poll() is not None:
            process, self._process = self._process, None
            self._tell(cluster, self._found(process), change)
        if not self._number:
            return
        asked = list(self._asked)
        if self._are_all_here(cluster) or now_ms >= max(until_ms for until_ms, _ in asked):
            rows = list(self._rows(cluster))
            self._number = 0
            for _, later in asked:
                self._asked.popleft()
                answer(later, {"nodes": rows})

    def close(self) -> None:
        """Nobody waits any more."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def _verify(self, cluster: Cluster) -> None:
        """With the latest record that each other node remembers of this one."""
        questions = dict(cluster.audits.questions)
        self._for = self._number, questions
        known = [one for claimed in cluster.audits.claims.values() for one in claimed.items()]
        known += [(one.known_number, one.known_head) for one in questions.values()]
        anchors = sorted({f"{number}:{head.hex()}" for number, head in known if number})
        words = [*self._command, *(word for one in anchors for word in ("--anchor", one))]
        try:
            self._process = subprocess.Popen(  # noqa: S603
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        except OSError as fault:
            log.warning("the audit is not verified: %s", fault)

    @staticmethod
    def _found(process: "subprocess.Popen[str]") -> AuditTold:
        said, fault = process.communicate()
        try:
            told = json.loads(said)
            return AuditTold(
                0,
                told.get("records", 0),
                told.get("first", 0),
                told.get("last", 0),
                bytes.fromhex(told.get("hash", "")),
                told.get("broken", 0),
                told.get("older", 0),
                str(told.get("why", ""))[:WHY_MAX],
            )
        except (ValueError, AttributeError):
            return AuditTold(0, why=(fault.strip() or "it cannot be verified")[:WHY_MAX])

    def _tell(self, cluster: Cluster, found: AuditTold, change: Change) -> None:
        number, questions = self._for
        if number == self._number:
            self._own = found

        def tell(fx: Effects, _now_ms: int) -> None:
            for index, asked in questions.items():
                if cluster.audits.questions.get(index) is asked:
                    del cluster.audits.questions[index]
                answer = msgspec.structs.replace(found, number=asked.number)
                cluster.tell_audit(index, answer, fx)

        change(tell)

    def _are_all_here(self, cluster: Cluster) -> bool:
        return self._own is not None and all(
            self._verdict(cluster, peer.index) is not None
            for peer in list(cluster.peers.values())
            if peer.is_up
        )

    def _verdict(self, cluster: Cluster, index: int) -> AuditTold | None:
        found = cluster.audits.verdicts.get(index)
        return found if found is not None and found.number == self._number else None

    def _rows(self, cluster: Cluster) -> Iterator[dict[str, Any]]:
        """A row for each node, this one first; a node that is not up has one, too."""
        yield _row(self._name, self._own, NO_ANSWER)
        for peer in sorted(cluster.peers.values(), key=lambda one: one.name):
            why = NO_ANSWER if peer.is_up else "it is not up"
            yield _row(peer.name, self._verdict(cluster, peer.index), why)


def _row(name: str, found: AuditTold | None, why: str) -> dict[str, Any]:
    if found is None:
        found = AuditTold(0, why=why)
    return {
        "node": name,
        "is_verified": bool(found.broken or found.older or not found.why),
        "records": found.records,
        "first": found.first,
        "last": found.last,
        "hash": found.head.hex(),
        "broken": found.broken,
        "older": found.older,
        "why": found.why,
    }


def verify_command(config: Config, node: Node) -> list[str]:
    """What verifies the audit of a node."""
    words = [sys.executable, "-P", "-m", "hms.boot", "audit", "verify", "--json"]
    return [*words, "--config", str(config.path), "--node", node.name]
