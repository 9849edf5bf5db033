"""Receipt: what a sender gets when the node has its message."""

from typing import NamedTuple


class Receipt(NamedTuple):
    """message_id: 12 hexadecimal digits; elapsed_s: from handing over to the confirmation."""

    message_id: str
    elapsed_s: float
