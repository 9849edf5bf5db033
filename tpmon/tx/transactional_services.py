"""A service in a transaction: of its caller, whose branch it joins, or in one of its own.

In the caller's, what the service did is prepared before it answers, because only this process can
do that; the answer says which branches it left, and the caller decides. In one of its own the
service decides itself. A listener's message is taken into that transaction when the handler has
succeeded: message and databases then have one outcome, and a handler that fails leaves the message
to the rules of redelivery.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from hms.client.core import current_transaction
from hms.errors.catalogue import ServiceCallFailed, TransactionRolledBack, TxProtocolError
from hms.errors.tree import HmsError
from hms.wire.branch_requests import XaTake
from hms.wire.structures import InvokeHead, ResultHead, wire_fields
from hms.wire.xa_constants import XA_OK, code_name
from tpmon.constants import TPFAIL, TPSUCCESS
from tpmon.invocation import Outcome
from tpmon.tx.connection_place import HMS, place_of
from tpmon.tx.transaction import Transaction
from tpmon.xa import decisions

if TYPE_CHECKING:
    from hms.client.core.blocking_connection import Connection

__all__ = ["serve"]

_LOGGER = logging.getLogger("tpmon.server")


def serve(
    connection: "Connection", head: InvokeHead, wanted: str, run: Callable[[], Outcome]
) -> Outcome:
    """Run a service; whatever fails becomes its result."""
    try:
        if head.transaction:
            return _in_callers(connection, head, wanted, run)
        if wanted == "mandatory":
            raise TxProtocolError(what=head.service, detail="it must be called in a transaction")
        return _in_own(connection, head, run) if wanted == "required" else run()
    except HmsError as error:
        _LOGGER.warning("service %s: %s", head.service, error)
        return _failed(head, error)


def _in_callers(
    connection: "Connection", head: InvokeHead, wanted: str, run: Callable[[], Outcome]
) -> Outcome:
    if wanted == "never":
        raise TxProtocolError(what=head.service, detail="it must not be called in a transaction")
    part = Transaction(place_of(connection), gtrid=head.transaction)
    outcome = _run(part, run)
    if not _is_good(outcome):
        part.roll_back_part()
        return outcome
    left = part.prepare_part()
    if not left:
        return outcome
    packed = (decisions.encode(left),)
    told = msgspec.structs.replace(outcome.head, branches=packed)
    return Outcome(told, outcome.data, outcome.is_last)


def _in_own(connection: "Connection", head: InvokeHead, run: Callable[[], Outcome]) -> Outcome:
    transaction = Transaction(place_of(connection))
    outcome = _run(transaction, run)
    if not _is_good(outcome):
        transaction.rollback()
        return outcome
    if head.is_message:
        try:
            _take(connection, transaction, head)
        except HmsError:
            transaction.rollback()
            raise
    transaction.commit()
    return outcome


def _run(transaction: Transaction, run: Callable[[], Outcome]) -> Outcome:
    current_transaction.enter(transaction)
    try:
        return run()
    finally:
        current_transaction.enter(None)


def _take(connection: "Connection", transaction: Transaction, head: InvokeHead) -> None:
    """The listener's message is acknowledged by the transaction."""
    session: Any = transaction.rm(HMS)
    told = connection.request(XaTake(session.state.number, head.call))
    if told["code"] != XA_OK:
        reason = f"its message was not taken: {code_name(told['code'])}: {told['reason']}"
        raise TransactionRolledBack(reason=reason)


def _is_good(outcome: Outcome) -> bool:
    return outcome.head.rval == TPSUCCESS and not outcome.head.error_number


def _failed(head: InvokeHead, error: HmsError) -> Outcome:
    told = ServiceCallFailed(service=head.service, detail=str(error))
    return Outcome(
        ResultHead(head.call, TPFAIL, error_number=told.number, error_fields=wire_fields(told))
    )
