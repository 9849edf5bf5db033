"""The network: a connection is two queues of frames, which are delayed, and may be cut."""

import random
from collections import deque
from typing import Any


class Pipe:
    """One connection of a client. peer: the node's key for it, from HELLO on.

    A cut loses a last part of what was on its way in either direction; each side notices in its own
    time, and may go on sending until then.
    """

    def __init__(self, uid: int) -> None:
        self.uid = uid
        self.to_node: deque[Any] = deque()
        self.to_client: deque[Any] = deque()
        self.peer: int | None = None
        self.is_node_side_open = True
        self.is_client_side_open = True
        self.is_cut = False

    def send_to_node(self, frame: Any) -> None:
        """The client sends; into the void once the connection is cut."""
        if not self.is_cut:
            self.to_node.append(frame)

    def send_to_client(self, frame: Any) -> None:
        """The node sends, likewise."""
        if not self.is_cut:
            self.to_client.append(frame)

    def cut(self, rng: random.Random) -> None:
        """Nothing more passes; a first part of what was on its way still arrives."""
        if self.is_cut:
            return
        self.is_cut = True
        for queue in (self.to_node, self.to_client):
            for _ in range(rng.randint(0, len(queue))):
                queue.pop()

    def close_node_side(self) -> None:
        """The node forgot the peer: what it sent before arrives, what comes is not read."""
        self.is_cut = True
        self.is_node_side_open = False
        self.to_node.clear()
