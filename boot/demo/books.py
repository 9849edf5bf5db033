"""The books: for every queue, what was sent is handled, waiting or dead, and nothing is twice."""

from collections.abc import Mapping
from dataclasses import dataclass

import click

import hms
from boot.demo.workers import Seen
from hms.client.connection import Connection


@dataclass(frozen=True, slots=True)
class Line:
    """One queue's line in the books."""

    queue: str
    sent: set[str]
    handled: set[str]
    waiting: set[str]
    dead: set[str]
    repeated: int
    unflagged: int

    @property
    def faults(self) -> list[str]:
        """What does not balance."""
        known = [self.handled, self.waiting, self.dead]
        lost = self.sent - set().union(*known)
        foreign = set().union(*known) - self.sent
        twice = sum(len(ids) for ids in known) - len(set().union(*known))
        found = {"lost": len(lost), "never sent": len(foreign), "in two places": twice}
        found["repeated without a flag"] = self.unflagged
        return [f"{self.queue}: {count} {what}" for what, count in found.items() if count]


def balance(
    connection: Connection, sent: Mapping[str, set[str]], seen: Mapping[str, Seen]
) -> list[Line]:
    """Look at every queue and compare."""
    dead = _browse_dead(connection)
    return [
        Line(
            queue,
            ids,
            seen[queue].ids,
            _browse(connection, queue),
            dead.get(f"queue:{queue}", set()),
            seen[queue].repeated,
            len(seen[queue].unflagged),
        )
        for queue, ids in sent.items()
    ]


def print_table(lines: list[Line]) -> None:
    """The summary that the demonstration ends with."""
    heads = f"{'sent':>8}{'handled':>9}{'waiting':>9}{'dead':>6}{'again':>7}"
    click.echo(f"{'queue':<14}{heads}  books")
    for line in lines:
        verdict = "do NOT balance" if line.faults else "balance"
        numbers = (
            f"{len(line.sent):>8,}{len(line.handled):>9,}{len(line.waiting):>9,}"
            f"{len(line.dead):>6,}{line.repeated:>7,}"
        )
        click.echo(f"{line.queue:<14}{numbers}  {verdict}")


def _browse(connection: Connection, queue: str) -> set[str]:
    with connection.session() as session, session.browser(hms.Queue(queue)) as browser:
        return {message.message_id for message in browser if message.message_id is not None}


def _browse_dead(connection: Connection) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    with connection.session() as session, session.browser(hms.Queue("HMS.DLQ")) as browser:
        for message in browser:
            origin = str(message.properties.get("$DeadOrigin"))
            assert message.message_id is not None
            found.setdefault(origin, set()).add(message.message_id)
    return found
