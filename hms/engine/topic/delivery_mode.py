"""Delivery: what becomes of a publication when one of its subscriptions cannot take it (PD-04).

ALL        each has to take it, or nobody gets it and the publisher hears why
ALLDUR     each durable one has to; what a passing one misses is counted
ALLAVAIL   each that can take it gets it; what others miss is counted
"""

import enum
from collections.abc import Iterable
from typing import NamedTuple

from hms.errors.catalogue import PublicationFailed


class Delivery(enum.StrEnum):
    """Who has to take a publication."""

    ALL = "ALL"
    ALLDUR = "ALLDUR"
    ALLAVAIL = "ALLAVAIL"


PERSISTENT_DEFAULT = Delivery.ALLDUR
NON_PERSISTENT_DEFAULT = Delivery.ALLAVAIL


class Missed(NamedTuple):
    """A subscription that cannot take a publication, and why. An administrative one is durable."""

    subscription: str
    is_durable: bool
    detail: str


def check_delivery(delivery: Delivery, topic: str, missed: Iterable[Missed]) -> None:
    """Refuse a publication that one who has to take it cannot take; nothing has changed yet."""
    if delivery is Delivery.ALLAVAIL:
        return
    for one in missed:
        if delivery is Delivery.ALL or one.is_durable:
            raise PublicationFailed(
                topic=topic,
                subscription=one.subscription,
                detail=one.detail,
                delivery=delivery.value,
            )
