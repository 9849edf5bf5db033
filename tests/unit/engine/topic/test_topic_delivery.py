"""Who has to take a publication (PD-04)."""

import pytest

from hms.engine.topic import Delivery, Missed, check_delivery
from hms.errors.catalogue import PublicationFailed

PASSING = Missed("watch", is_durable=False, detail="full")
DURABLE = Missed("billing", is_durable=True, detail="full")


@pytest.mark.parametrize(
    ("delivery", "missed"),
    [
        (Delivery.ALL, []),
        (Delivery.ALLDUR, []),
        (Delivery.ALLDUR, [PASSING]),
        (Delivery.ALLAVAIL, [PASSING, DURABLE]),
    ],
)
def test_a_publication_goes_out_although_somebody_misses_it(delivery, missed):
    """One full subscription must not stop those that are not asked to wait for it."""
    check_delivery(delivery, "a", missed)


@pytest.mark.parametrize(
    ("delivery", "missed"),
    [(Delivery.ALL, [PASSING]), (Delivery.ALL, [DURABLE]), (Delivery.ALLDUR, [PASSING, DURABLE])],
)
def test_a_publication_is_refused_when_one_who_has_to_take_it_cannot(delivery, missed):
    """All or nobody: the publisher hears who, why, and by which rule."""
    with pytest.raises(PublicationFailed) as caught:
        check_delivery(delivery, "a", missed)
    assert caught.value.subscription == missed[-1].subscription
    assert caught.value.delivery == delivery
