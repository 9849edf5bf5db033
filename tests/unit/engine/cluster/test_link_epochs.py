"""Two nodes and connections that break at any moment: whatever is said while the other one counts
as up arrives, in order, or both begin anew and it is said again."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from hms.engine.cluster.members import Hello, Incarnation, Members, PeerState, Presence
from hms.errors.catalogue import MemberRefused

SILENCE_MS = 1000
ROUNDS = 12


@dataclass
class Side:
    """A node with the frames that are under way to the other one, by connection."""

    index: int
    members: Members = None
    sent: dict = field(default_factory=dict)
    connection: int = 0
    epoch: int = 1
    is_up: bool = False
    said: list = field(default_factory=list)
    """Words since the other one is up."""
    taken: list = field(default_factory=list)
    """Words of the other one since that is up."""

    def __post_init__(self):
        own = Hello("hms", f"n{self.index}", self.index, Incarnation(self.index, 1), 1)
        other = 3 - self.index
        self.members = Members(own, [(other, f"n{other}")], SILENCE_MS)
        self.other = self.members.members[other]

    def frame(self, kind, word=0):
        """Into the newest connection."""
        state = PeerState(self.members.own.life, self.other.own_epoch)
        queue = self.sent.setdefault(self.connection, [])
        queue.append((kind, state, self.other.state, word))

    def say(self, word):
        """As the links do: to who is up."""
        if self.other.presence is Presence.UP:
            self.said.append(word)
            self.frame("word", word)

    def hear(self, connection, frame):
        """As the links do."""
        kind, state, hears, word = frame
        pipe, node = b"%d" % connection, self.other.index
        try:
            if kind == "hello":
                said = Hello("hms", f"n{node}", node, state.life, 1, "", state.epoch)
                self.changed(self.members.hello(said, pipe, 0))
            else:
                self.members.known(node, state, pipe)
            self.changed(self.members.heard(node, state, hears, 0))
        except MemberRefused:
            return
        if kind == "word" and self.members.is_welcome(node, state.life):
            self.taken.append(word)

    def changed(self, changes):
        """Nothing that was said before counts any more."""
        for change in changes:
            assert change.is_up != self.is_up, "two ups would double a node's books"
            self.is_up, self.said, self.taken = change.is_up, [], []
        if self.other.own_epoch != self.epoch:
            self.epoch = self.other.own_epoch
            self.connection += 1

    def reconnect(self, lost):
        """The connection breaks with the last frames of it, and is made again."""
        queue = self.sent.setdefault(self.connection, [])
        del queue[max(0, len(queue) - lost) :]
        self.connection += 1

    def deliver(self, to, pick):
        """One frame of any connection, as each is read on its own."""
        ready = sorted(c for c, frames in self.sent.items() if frames)
        if ready:
            connection = ready[pick % len(ready)]
            to.hear(connection, self.sent[connection].pop(0))


STEPS = st.tuples(
    st.sampled_from(["hello", "say", "say", "deliver", "deliver", "deliver", "reconnect", "fail"]),
    st.integers(0, 1),
    st.integers(0, 4),
)


def settle(sides):
    """Nothing breaks any more."""
    for _ in range(ROUNDS):
        for side, other in (sides, sides[::-1]):
            side.frame("hello")
            while any(side.sent.values()):
                side.deliver(other, 0)


@given(st.lists(STEPS, max_size=80))
def test_what_was_said_to_a_node_that_is_up_is_there_or_said_again(steps):
    """An interest or an offer that was lost in silence would be missed for ever."""
    sides, word = [Side(1), Side(2)], 0
    settle(sides)
    for what, who, number in steps:
        side, other = sides[who], sides[1 - who]
        if what == "hello":
            side.frame("hello")
        elif what == "say":
            word += 1
            side.say(word)
        elif what == "deliver":
            side.deliver(other, number)
        elif what == "reconnect":
            side.reconnect(number)
        else:
            side.changed(side.members.gone(other.index, "silent"))

    settle(sides)

    first, second = sides
    assert (first.other.presence, second.other.presence) == (Presence.UP, Presence.UP)
    assert second.taken == first.said
    assert first.taken == second.said
