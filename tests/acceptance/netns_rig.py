"""A laboratory of network namespaces: each node in one of its own, joined by a bridge.

Clients come over ipc, which no namespace cuts; the links between nodes run over veth pairs. A whole
node is cut by setting its pair down, one half from the other by moving its pairs to a second
bridge, a single pair of nodes by dropping what one has for the other.
"""

import os
import subprocess
from itertools import combinations, count

_NUMBERS = count(1)


def run(*words):
    """An ip command that has to work."""
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=60)


class Lab:
    """Namespaces 1 … count at 10.79.N.1 …; gone with close()."""

    def __init__(self, count):
        self.number = next(_NUMBERS)
        self._tag = f"{os.getpid() % 100_000}x{self.number}"
        self.indexes = range(1, count + 1)
        self._dropped = set()
        self._make()

    def space(self, index):
        """The name of a namespace."""
        return f"hms{self._tag}n{index}"

    def address(self, index):
        """Where the node of that index is."""
        return f"10.79.{self.number % 250}.{index}"

    def prefix(self, index):
        """Runs a program there."""
        return ["ip", "netns", "exec", self.space(index)]

    def _outside(self, index):
        return f"v{self._tag}{index}"[:15]

    def _bridge(self, number):
        return f"b{self._tag}{'ab'[number]}"[:15]

    def _make(self):
        for number in (0, 1):
            run("link", "add", self._bridge(number), "type", "bridge")
            run("link", "set", self._bridge(number), "up")
        for index in self.indexes:
            space, outside, inside = self.space(index), self._outside(index), f"i{index}"
            run("netns", "add", space)
            pair = ["type", "veth", "peer", "name", inside, "netns", space]
            run("link", "add", outside, *pair)
            run("link", "set", outside, "master", self._bridge(0), "up")
            run("-n", space, "addr", "add", f"{self.address(index)}/24", "dev", inside)
            run("-n", space, "link", "set", inside, "up")
            run("-n", space, "link", "set", "lo", "up")

    def isolate(self, *indexes):
        """Nobody hears them, and they hear nobody."""
        for index in indexes:
            run("link", "set", self._outside(index), "down")

    def halve(self, *indexes):
        """These hear one another, so do the others, and no half hears the other one."""
        for index in indexes:
            run("link", "set", self._outside(index), "master", self._bridge(1))

    def part(self, one, other):
        """These two do not hear one another; others hear both."""
        self.mute(one, other)
        self.mute(other, one)

    def mute(self, one, other):
        """What one says to the other is lost."""
        run("-n", self.space(one), "route", "add", "blackhole", self.address(other))
        self._dropped.add((one, other))

    def ring(self, order):
        """Everybody hears the neighbours of a ring; of three, each hears the next one only."""
        size = len(order)
        if size == 3:
            for place, one in enumerate(order):
                self.mute(one, order[place - 2])
            return
        for one, other in combinations(range(size), 2):
            if other - one not in (1, size - 1):
                self.part(order[one], order[other])

    def heal(self):
        """Everybody hears everybody."""
        for one, other in self._dropped:
            run("-n", self.space(one), "route", "del", "blackhole", self.address(other))
        self._dropped.clear()
        for index in self.indexes:
            run("link", "set", self._outside(index), "master", self._bridge(0), "up")

    def close(self):
        """Take everything away."""
        gone = [["netns", "del", self.space(index)] for index in self.indexes]
        gone += [["link", "del", self._bridge(number)] for number in (0, 1)]
        for words in gone:
            subprocess.run(["ip", *words], check=False, capture_output=True, timeout=20)


def make_lab(count):
    """A laboratory; the test is skipped where the machine does not permit one."""
    import pytest  # here: bench.ha has a laboratory, too, and no tests

    try:
        return Lab(count)
    except FileNotFoundError:
        pytest.skip("the command ip is not installed; scripts/test installs it")
    except subprocess.CalledProcessError as fault:
        pytest.skip(f"network namespaces are not permitted here: {fault.stderr.decode().strip()}")
