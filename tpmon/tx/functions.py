"""The functions of X/Open TX, per thread or task, with the names and numbers of tx.h.

They return TX_OK or raise: tx_code(error) tells the number. As in Tmax's clients, tx_begin() opens
by itself what tx_open() would, unless tx_close() was called.
"""

import contextvars
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from hms.client.core import current_transaction
from hms.errors.catalogue import TxInvalid, TxProtocolError
from hms.errors.tree import HmsError
from hms.wire.xid import Xid
from tpmon import context
from tpmon.tx.codes import (
    TX_OK,
    CommitReturn,
    TransactionControl,
    TransactionState,
)
from tpmon.tx.connection_place import place_of
from tpmon.tx.transaction import Transaction, current

__all__ = [
    "TXINFO",
    "tpresumetx",
    "tpsuspendtx",
    "tx_begin",
    "tx_close",
    "tx_commit",
    "tx_info",
    "tx_open",
    "tx_rollback",
    "tx_set_commit_return",
    "tx_set_transaction_control",
    "tx_set_transaction_timeout",
]

_TIMEOUT_S_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class TXINFO:
    """What tx_info() tells; xid None outside a transaction."""

    xid: Xid | None
    when_return: CommitReturn
    transaction_control: TransactionControl
    transaction_timeout: int
    transaction_state: TransactionState

    @property
    def in_transaction(self) -> bool:
        """Whether the thread or task is in a transaction."""
        return self.xid is not None


_is_closed: contextvars.ContextVar[bool] = contextvars.ContextVar("tx_closed", default=False)
_when: contextvars.ContextVar[CommitReturn] = contextvars.ContextVar(
    "tx_when", default=CommitReturn.COMPLETED
)
_control: contextvars.ContextVar[TransactionControl] = contextvars.ContextVar(
    "tx_control", default=TransactionControl.UNCHAINED
)
_timeout_s: contextvars.ContextVar[int] = contextvars.ContextVar("tx_timeout", default=0)
_E = TypeVar("_E", CommitReturn, TransactionControl)
_suspended: dict[bytes, Transaction] = {}


def tx_open() -> int:
    """Make this thread or task ready for transactions; again is harmless. NotConnected."""
    context.current("tx_open()")
    _is_closed.set(False)
    return TX_OK


def tx_close() -> int:
    """No more transactions until tx_open(); TxProtocolError inside one."""
    if current() is not None:
        raise TxProtocolError(what="tx_close()", detail="a transaction is going on")
    _is_closed.set(True)
    return TX_OK


def tx_begin() -> int:
    """Begin a transaction; TxProtocolError when one is going on, or after tx_close()."""
    connection = context.current("tx_begin()").connection
    if _is_closed.get():
        raise TxProtocolError(what="tx_begin()", detail="tx_close() was called: tx_open() first")
    if current() is not None:
        raise TxProtocolError(what="tx_begin()", detail="a transaction is going on already")
    transaction = Transaction(place_of(connection), _timeout_s.get())
    transaction.enlist_all(current_transaction.sessions(connection))
    current_transaction.enter(transaction)
    return TX_OK


def tx_commit() -> int:
    """Commit; TransactionRolledBack, TxMixed, TxHazard, TxFatal, TxProtocolError.

    With TX_DECISION_LOGGED it returns as soon as the decision is durable; with TX_CHAINED the next
    transaction begins before it returns, whatever became of this one.
    """
    transaction = _own("tx_commit()")
    is_waited = _when.get() is CommitReturn.COMPLETED
    return _ended(transaction, lambda: transaction.commit(is_waited=is_waited))


def tx_rollback() -> int:
    """Roll back; TxMixed, TxHazard, TxHeuristicCommit, TxProtocolError. TX_CHAINED as above."""
    transaction = _own("tx_rollback()")
    return _ended(transaction, transaction.rollback)


def _own(what: str) -> Transaction:
    transaction = current()
    if transaction is None:
        raise TxProtocolError(what=what, detail="no transaction is going on")
    return transaction


def _ended(transaction: Transaction, end: Callable[[], object]) -> int:
    try:
        end()
    except TxProtocolError:
        raise
    except HmsError as error:
        _begin_next(error)
        raise
    assert transaction.is_ended
    _begin_next(None)
    return TX_OK


def _begin_next(error: HmsError | None) -> None:
    """The next chained one; when it cannot begin, `no_begin` of the error says so."""
    current_transaction.enter(None)
    if _control.get() is not TransactionControl.CHAINED:
        return
    try:
        tx_begin()
    except HmsError as fault:
        if error is None:
            raise type(fault)(**{**fault.fields, "no_begin": True}) from fault
        error.fields["no_begin"] = True


def tx_info() -> TXINFO:
    """The characteristics of this thread or task, and its transaction."""
    transaction = current()
    is_none = transaction is None
    return TXINFO(
        None if transaction is None else transaction.xid,
        _when.get(),
        _control.get(),
        _timeout_s.get(),
        TransactionState.NOT_ACTIVE if is_none or transaction is None else transaction.state,
    )


def tx_set_commit_return(when: int) -> int:
    """When tx_commit() returns: TX_COMMIT_COMPLETED or TX_COMMIT_DECISION_LOGGED; TxInvalid."""
    _when.set(_one_of(CommitReturn, when, "tx_set_commit_return()"))
    return TX_OK


def tx_set_transaction_control(control: int) -> int:
    """TX_UNCHAINED or TX_CHAINED; TxInvalid."""
    _control.set(_one_of(TransactionControl, control, "tx_set_transaction_control()"))
    return TX_OK


def tx_set_transaction_timeout(sec: int) -> int:
    """How long the next transaction may take, in seconds; 0: no limit. TxInvalid."""
    if not 0 <= sec <= _TIMEOUT_S_MAX:
        raise TxInvalid(what="tx_set_transaction_timeout()", detail=f"{sec} s is no timeout")
    _timeout_s.set(sec)
    return TX_OK


def _one_of(kind: type[_E], value: int, what: str) -> _E:
    try:
        return kind(value)
    except ValueError as fault:
        raise TxInvalid(what=what, detail=f"{value!r} is no {kind.__name__}") from fault


def tpsuspendtx() -> bytes:
    """Leave the transaction for a while; what tpresumetx() wants to go on. TxProtocolError."""
    transaction = _own("tpsuspendtx()")
    transaction.suspend()
    _suspended[transaction.gtrid] = transaction
    current_transaction.enter(None)
    return transaction.gtrid


def tpresumetx(tranid: bytes) -> int:
    """Go on with a transaction that any thread of this process suspended; TxProtocolError when one
    is going on here, TxInvalid when none of that name is suspended."""
    if current() is not None:
        raise TxProtocolError(what="tpresumetx()", detail="a transaction is going on already")
    transaction = _suspended.pop(tranid, None)
    if transaction is None:
        raise TxInvalid(what="tpresumetx()", detail=f"{tranid.hex()} is not suspended here")
    transaction.resume()
    current_transaction.enter(transaction)
    return TX_OK
