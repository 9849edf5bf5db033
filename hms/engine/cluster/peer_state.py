"""What a node knows of another one while that is up; nothing of it outlives a cut."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hms.engine.cluster.cluster_messages import Ask, Gossip
from hms.engine.cluster.members import NOBODY, Incarnation
from hms.engine.cluster.planning import Figures
from hms.engine.selector import KEPT_LIMITS, Selector
from hms.engine.selector.selector_cost import Price


@dataclass(slots=True)
class Wanted:
    """What the other node asked this one for; given: how many of them were offered since; looked:
    at so many of those that wait its selectors were asked before, and chose nothing."""

    count: int
    until_ms: int
    given: int = 0
    selectors: Sequence[Selector] = ()
    looked: int = 0

    @property
    def price(self) -> Price:
        """What asking all of its selectors about a message costs."""
        prices = [one.price for one in self.selectors]
        return Price(sum([p.each for p in prices]), sum([p.per_bytes for p in prices]))


@dataclass(slots=True)
class Asked:
    """What this node asked the other one for; came: how many of them are here."""

    count: int
    said_ms: int
    came: int = 0

    def rest(self, since_ms: int) -> int:
        """How many may still come, if it was said after that."""
        return max(0, self.count - self.came) if self.said_ms > since_ms else 0


@dataclass(slots=True)
class Tally:
    """What went to and fro with a node since this one booted."""

    moved_in: int = 0
    moved_out: int = 0
    refused: int = 0
    taken_back: int = 0
    asked: int = 0
    faults: int = 0

    def moved_in_later(self, count: int) -> None:
        """So many have waited here for what selectors say of them, and were taken."""
        self.moved_in += count


@dataclass(slots=True)
class Peer:
    """Another node. pause_ms: by queue, until when nothing is offered to it that it refused."""

    index: int
    name: str
    is_up: bool = False
    life: Incarnation = NOBODY
    told: int = 0
    is_drained: bool = False
    figures: dict[str, Figures] = field(default_factory=dict)
    wanted: dict[str, Wanted] = field(default_factory=dict)
    asked: dict[str, Asked] = field(default_factory=dict)
    last_offer: int = 0
    """The number of its last offer that was answered."""
    given: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Queue and count of offers to it that its figures do not tell of yet."""
    pause_ms: dict[str, int] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    last_error: str = ""

    def came(self, life: Incarnation) -> None:
        """It is up, and nothing is known of it yet."""
        self.forget()
        self.is_up, self.life, self.last_error = True, life, ""

    def forget(self) -> None:
        """It is gone: its figures and wishes leave the picture at once."""
        self.is_up, self.is_drained, self.told, self.last_offer = False, False, 0, 0
        for table in (self.figures, self.wanted, self.asked, self.given, self.pause_ms):
            table.clear()

    def gossip(self, said: Gossip) -> None:
        """Its queues, as it tells them; an older word than the last one is not news."""
        if said.number <= self.told:
            return
        self.told, self.is_drained = said.number, said.is_drained
        self.given = {n: what for n, what in self.given.items() if n > said.after}
        if said.is_whole:
            self.figures.clear()
        for one in said.queues:
            self.figures[one.name] = Figures(
                one.length, one.consumers, one.rate, one.bytes, one.is_taking
            )

    def figures_now(self, queue: str, now_ms: int) -> Figures | None:
        """Its figures, with what was given to it since; who refused just now takes nothing."""
        told = self.figures.get(queue)
        if told is None:
            return None
        more = sum(count for name, count in self.given.values() if name == queue)
        is_paused = self.is_drained or self.pause_ms.get(queue, 0) > now_ms
        return replace(told, length=told.length + more, is_taking=told.is_taking and not is_paused)

    def wants(self, said: Ask, until_ms: int) -> None:
        """It asks for messages; SelectorSyntaxError for a selector that is none."""
        before = self.wanted.get(said.queue)
        known = {} if before is None else {one.text: one for one in before.selectors}
        selectors = [known.get(text) or Selector(text, KEPT_LIMITS) for text in said.selectors]
        looked = 0 if before is None or list(known) != list(said.selectors) else before.looked
        later = [
            count
            for number, (name, count) in self.given.items()
            if number > said.after and name == said.queue
        ]
        self.wanted[said.queue] = Wanted(said.count, until_ms, sum(later), selectors, looked)

    def gives(self, queue: str, number: int, count: int) -> None:
        """An offer was made to it."""
        self.given[number] = queue, count
        if queue in self.wanted:
            self.wanted[queue].given += count
