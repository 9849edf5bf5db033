"""Who keeps the file of the policy, and looks after the audit: asked under the engine's lock, it
answers when it has read it."""

from typing import Protocol

from hms.errors.catalogue import NotSupported
from hms.server.node_operations import Later
from hms.wire.operations import Operation

__all__ = ["NO_KEEPER", "PolicyKeeper"]


class PolicyKeeper(Protocol):
    """Nothing waits here."""

    def show(self) -> Later:
        """The policy that holds, without what is secret."""

    def reload(self) -> Later:
        """What became of the file as it is now."""

    def keep(self, verb: str, asked: Operation, user: str, audit_number: int) -> Later:
        """What a user asks of the policy, or has changed in it."""

    def may_renew(self, user: str) -> bool:
        """Whether another hash of the password of a user would be kept; from any thread."""

    def renew(self, user: str, stored: str, fresh: str) -> None:
        """Keep a hash in place of the stored one, when that is possible; from any thread."""

    def verify_audits(self, wait_s: int) -> Later:
        """What each node of the cluster finds of its audit."""


class _NoKeeper:
    """A policy that is in no file."""

    def show(self) -> Later:
        raise NotSupported(feature="the policy without a file", instead="Set security in hms.conf.")

    reload = show

    def keep(self, verb: str, asked: Operation, user: str, audit_number: int) -> Later:  # noqa: ARG002 - as PolicyKeeper
        return self.show()

    def may_renew(self, user: str) -> bool:  # noqa: ARG002 - as before
        return False

    def renew(self, user: str, stored: str, fresh: str) -> None:
        """There is no file."""

    def verify_audits(self, wait_s: int) -> Later:  # noqa: ARG002 - as PolicyKeeper
        return self.show()


NO_KEEPER = _NoKeeper()
