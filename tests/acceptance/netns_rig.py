"""A laboratory of network namespaces: each node in one of its own, joined by a bridge.

Clients come over ipc, which no namespace cuts; the links between nodes run over veth pairs that are
set down, or whose packets to one other node are dropped.
"""

import os
import subprocess
from itertools import count

import pytest

_NUMBERS = count(1)


def run(*words):
    """An ip command that has to work."""
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)


class Lab:
    """Namespaces 1 … count at 10.79.N.1 …; gone with close()."""

    def __init__(self, count):
        self.number = next(_NUMBERS)
        self._tag = f"{os.getpid() % 100_000}x{self.number}"
        self.indexes = range(1, count + 1)
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

    def _make(self):
        bridge = f"b{self._tag}"[:15]
        run("link", "add", bridge, "type", "bridge")
        run("link", "set", bridge, "up")
        for index in self.indexes:
            space, outside, inside = self.space(index), self._outside(index), f"i{index}"
            run("netns", "add", space)
            pair = ["type", "veth", "peer", "name", inside, "netns", space]
            run("link", "add", outside, *pair)
            run("link", "set", outside, "master", bridge, "up")
            run("-n", space, "addr", "add", f"{self.address(index)}/24", "dev", inside)
            run("-n", space, "link", "set", inside, "up")
            run("-n", space, "link", "set", "lo", "up")

    def isolate(self, *indexes):
        """Nobody hears them, and they hear nobody."""
        for index in indexes:
            run("link", "set", self._outside(index), "down")

    def part(self, one, other):
        """These two do not hear one another; others hear both."""
        run("-n", self.space(one), "route", "add", "blackhole", self.address(other))
        run("-n", self.space(other), "route", "add", "blackhole", self.address(one))

    def mute(self, one, other):
        """What one says to the other is lost."""
        run("-n", self.space(one), "route", "add", "blackhole", self.address(other))

    def heal(self):
        """Everybody hears everybody."""
        for index in self.indexes:
            run("link", "set", self._outside(index), "up")
            for other in self.indexes:
                words = ["-n", self.space(index), "route", "del", "blackhole", self.address(other)]
                subprocess.run(["ip", *words], check=False, capture_output=True, timeout=20)

    def close(self):
        """Take everything away."""
        for index in self.indexes:
            words = ["netns", "del", self.space(index)]
            subprocess.run(["ip", *words], check=False, capture_output=True, timeout=20)
        bridge = f"b{self._tag}"[:15]
        words = ["link", "del", bridge]
        subprocess.run(["ip", *words], check=False, capture_output=True, timeout=20)


def make_lab(count):
    """A laboratory; the test is skipped where the machine does not permit one."""
    try:
        return Lab(count)
    except FileNotFoundError:
        pytest.skip("the command ip is not installed")
    except subprocess.CalledProcessError as fault:
        pytest.skip(f"network namespaces are not permitted here: {fault.stderr.decode().strip()}")
