"""The books: for every queue, what was sent is handled, waiting or dead, and nothing is twice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import click

import hms
from hms.boot.demo.workers import Seen
from hms.client.connection import Connection


@dataclass(frozen=True, slots=True)
class Line:
    """One queue's line in the books; copies: messages that wait at a second node too."""

    queue: str
    sent: set[str]
    handled: set[str]
    waiting: set[str]
    dead: set[str]
    repeated: int
    unflagged: int
    copies: int = 0
    moved: int | None = None

    @property
    def faults(self) -> list[str]:
        """What does not balance."""
        known = [self.handled, self.waiting, self.dead]
        lost = self.sent - set().union(*known)
        foreign = set().union(*known) - self.sent
        twice = sum(len(ids) for ids in known) - len(set().union(*known)) + self.copies
        found = {"lost": len(lost), "never sent": len(foreign), "in two places": twice}
        found["repeated without a flag"] = self.unflagged
        return [f"{self.queue}: {count} {what}" for what, count in found.items() if count]


def balance(
    connections: Sequence[Connection],
    sent: Mapping[str, set[str]],
    seen: Mapping[str, Seen],
    moved: Mapping[str, int] | None = None,
) -> list[Line]:
    """Look at every queue at every node and compare; moved: how many went to another node."""
    dead: dict[str, list[str]] = {}
    for connection in connections:
        _browse_dead(connection, dead)
    lines = []
    for queue, ids in sent.items():
        waiting = [one for connection in connections for one in _browse(connection, queue)]
        letters = dead.get(f"queue:{queue}", [])
        found = ids, seen[queue].ids, set(waiting), set(letters)
        copies = len(waiting) + len(letters) - len(found[2]) - len(found[3])
        again = seen[queue].repeated, len(seen[queue].unflagged)
        lines.append(Line(queue, *found, *again, copies, moved.get(queue, 0) if moved else None))
    return lines


def print_table(lines: list[Line]) -> None:
    """The summary that the demonstration ends with."""
    heads = f"{'sent':>8}{'handled':>9}{'waiting':>9}{'dead':>6}{'again':>7}"
    heads += "".join(f"{'moved':>8}" for _ in lines[:1] if lines[0].moved is not None)
    click.echo(f"{'queue':<14}{heads}  books")
    for line in lines:
        verdict = "do NOT balance" if line.faults else "balance"
        numbers = (
            f"{len(line.sent):>8,}{len(line.handled):>9,}{len(line.waiting):>9,}"
            f"{len(line.dead):>6,}{line.repeated:>7,}"
        ) + (f"{line.moved:>8,}" if line.moved is not None else "")
        click.echo(f"{line.queue:<14}{numbers}  {verdict}")


def _browse(connection: Connection, queue: str) -> list[str]:
    with connection.session() as session, session.browser(hms.Queue(queue)) as browser:
        return [message.message_id for message in browser if message.message_id is not None]


def _browse_dead(connection: Connection, found: dict[str, list[str]]) -> None:
    with connection.session() as session, session.browser(hms.Queue("HMS.DLQ")) as browser:
        for message in browser:
            origin = str(message.properties.get("$DeadOrigin"))
            assert message.message_id is not None
            found.setdefault(origin, []).append(message.message_id)
