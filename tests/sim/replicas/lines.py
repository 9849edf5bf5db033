"""The network: lines that keep their order, and end as a whole when they are cut."""

from collections import deque

from hms.server.replicas.frames import FORMAT, Ack, Envelope, decode, encode

TIME, BEAT_PARTS = b"Time", 4


class Line:
    """A follower's end. Messages of both ways wait here until the world lets them through."""

    def __init__(self, net, me, primary):
        self.net, self.me, self.primary = net, me, primary
        self.route = b"%d" % next(net.routes)
        self.up, self.down, self.here, self.there = deque(), deque(), deque(), deque()
        self.is_cut = net.is_cut(me, primary)
        self.epoch = 0
        net.lines[self.route] = self

    def say(self, log, replica, start, said, epoch=0):
        if isinstance(said, Ack):
            self.net.on_ack(self.me, self.epoch)
        if not self.is_cut:
            self.up.append([encode(Envelope(FORMAT, log, epoch, replica, start, said)), b""])

    def received(self):
        while self.here:
            parts = self.here.popleft()
            self.epoch = decode(parts[:2])[0].epoch
            yield from [parts[:2], parts[2:]] if len(parts) == BEAT_PARTS else [parts]

    def wait(self, _timeout_s):
        pass

    def is_lost(self):
        return False

    def refuses_key(self):
        return False

    def shows_other_key(self):
        return False

    def close(self):
        self.is_closed = self.is_cut = True
        self.here.clear()


class Socket:
    """A primary's end; frames of those who call it by its name."""

    def __init__(self, net, me):
        self._net, self._me = net, me
        net.sockets[me] = self

    def send(self, route, envelope, data):
        line = self._net.lines.get(route)
        if line is None or line.is_cut or line.primary != self._me:
            return
        if TIME in envelope and line.down:  # it comes with the beat that was said just before
            line.down[-1] += [envelope, data]
        else:
            line.down.append([envelope, data])

    def received(self):
        for line in list(self._net.lines.values()):
            while line.primary == self._me and line.there:
                yield [line.route, *line.there.popleft()]

    def let_in(self, peers):
        pass

    def wait(self, _timeout_s):
        pass

    def wake(self):
        pass

    def close(self):
        if self._net.sockets.get(self._me) is self:
            del self._net.sockets[self._me]


class Net:
    """All lines. on_ack: told before a copy says that it has something."""

    def __init__(self, rng, on_ack):
        self._rng, self.on_ack = rng, on_ack
        self.lines, self.sockets = {}, {}
        self.routes = iter(range(1, 1 << 30))
        self.cut, self.stalled = set(), set()
        """Pairs between whom nothing gets through; who says nothing that the other one hears."""

    def is_cut(self, one, other):
        return frozenset((one, other)) in self.cut

    def partition(self, pairs):
        """Nothing gets through between these."""
        self.cut = set(pairs)
        for line in self.lines.values():
            line.is_cut |= self.is_cut(line.me, line.primary)

    def heal(self):
        """New lines work."""
        self.cut.clear()

    def gone(self, name):
        """A process ended: its lines are no more, what it has said may still come."""
        self.sockets.pop(name, None)
        for line in list(self.lines.values()):
            if line.me == name:
                line.is_cut = True
            elif line.primary == name:
                line.there.clear()

    def carry(self):
        """Some of what is on its way arrives."""
        for line in list(self.lines.values()):
            ways = (
                (line.up, line.there, line.me, line.primary),
                (line.down, line.here, line.primary, line.me),
            )
            for source, target, *ends in ways:
                if (*ends,) in self.stalled:
                    continue
                for _ in range(self._rng.randint(0, min(len(source), 6))):
                    target.append(source.popleft())
            is_over = line.is_cut and not (line.up or line.down or line.here or line.there)
            if is_over or (line.is_cut and self._rng.random() < 0.05):
                del self.lines[line.route]
