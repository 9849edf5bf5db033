"""Receipt: what a sender gets when the node has its message."""

from typing import NamedTuple


class Receipt(NamedTuple):
    """message_id: 12 hexadecimal digits; elapsed_s: from handing over to the confirmation. In a
    session with AckMode.NONE nobody waits for that: then they are None and 0."""

    message_id: str | None
    elapsed_s: float
