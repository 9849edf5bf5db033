"""What the engine asks of a node that checks logins, where only the engine knows what is meant."""

from typing import Protocol

from hms.engine.topic.patterns import Pattern

__all__ = ["Authority"]


class Authority(Protocol):
    """Answers for users, by their names."""

    def may_receive(self, user: str, topic: str, queue: str) -> bool:
        """Whether the owner of a subscription may have what is published on a topic; queue: and may
        have it put there, "" when it waits in the subscription."""

    def may_receive_some(self, user: str, pattern: Pattern, queue: str) -> bool:
        """The same, of any topic that a pattern matches."""

    def check_schedule(self, owner: str, name: str, kind: str, place: str, flags: int) -> None:
        """NotAuthorized unless the owner of a schedule may send, now, what it sends. place: a queue
        or a topic; flags: of the message."""

    def check_put(self, connection: int, user: str, kind: str, name: str) -> None:
        """NotAuthorized unless a connection may act for a user, and that user may send to a queue
        or topic. user "": nobody said who it is."""

    def check_retain(self, connection: int, topic: str) -> None:
        """NotAuthorized unless a connection may have the topic retain what it publishes."""
