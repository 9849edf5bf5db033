"""Advertised services: the services that a connection offers, and offers again on a new one."""

from hms.client.core.link import Link
from hms.client.core.link_participants import Participant
from hms.client.core.pending_requests import OnLoss, Pending
from hms.errors.tree import HmsError
from hms.wire.structures import Advertise, Unadvertise


class AdvertisedServices(Participant):
    """See the module."""

    tick_s = 0.0

    def __init__(self, link: Link) -> None:
        self._link = link
        self._offered: dict[str, Advertise] = {}
        link.participants.append(self)

    def note(self, request: Advertise | Unadvertise) -> None:
        """What is asked of the node from now on holds for the next connection too."""
        if isinstance(request, Advertise):
            self._offered[request.service] = request
        else:
            self._offered.pop(request.service, None)

    def restore(self) -> None:
        """Offer all of them."""
        for offer in self._offered.values():
            self._link.request(offer, Pending("Advertise", OnLoss.DONE))

    def lost(self, error: HmsError) -> None:
        """Nothing: their names are all that there is."""

    def tick(self) -> None:
        """Nothing is held back."""

    def drain(self) -> None:
        """Nothing is held back here."""

    def leave(self) -> None:
        """The end of the connection ends them."""
