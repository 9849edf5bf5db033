"""What systemd would hear of a node: a socket for its words, and the words in order."""

import socket
import threading
from contextlib import closing, contextmanager

from tests.support.waiting import wait_until

__all__ = ["Ear", "ear_at"]


class Ear:
    """words: those that came, in order."""

    def __init__(self, path):
        self._path, self._marks = path, 0
        self.words = []

    def say(self, word):
        """As a node does."""
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as mouth:
            mouth.sendto(word.encode(), str(self._path))

    def heard(self):
        """All words up to now: what was sent before has come when a later word has."""
        self._marks += 1
        mark = f"MARK={self._marks}"
        self.say(mark)
        wait_until(lambda: mark in self.words)
        return [word for word in self.words if not word.startswith("MARK=")]

    def hear(self, at):
        """Until an empty word comes."""
        while said := at.recv(4096):
            self.words.extend(said.decode().splitlines())


@contextmanager
def ear_at(path):
    """Words as they come: the kernel keeps ten datagrams, and drops what a node says beyond."""
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as at:
        at.bind(str(path))
        ear = Ear(path)
        thread = threading.Thread(target=ear.hear, args=(at,))
        thread.start()
        try:
            yield ear
        finally:
            ear.say("")
            thread.join()
