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

    def verify_audits(self, wait_s: int) -> Later:
        """What each node of the cluster finds of its audit."""


class _NoKeeper:
    """A policy that is in no file."""

    def show(self) -> Later:
        raise NotSupported(feature="the policy without a file", instead="Set security in hms.conf.")

    reload = show

    def keep(self, verb: str, asked: Operation, user: str, audit_number: int) -> Later:  # noqa: ARG002 - as PolicyKeeper
        return self.show()

    def verify_audits(self, wait_s: int) -> Later:  # noqa: ARG002 - as PolicyKeeper
        return self.show()


NO_KEEPER = _NoKeeper()
