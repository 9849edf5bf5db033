"""Numbers of X/Open TX (tx.h), with their values there, and which error stands for which."""

from enum import IntEnum

from hms.errors.catalogue import (
    TransactionRolledBack,
    TxFatal,
    TxHazard,
    TxHeuristicCommit,
    TxInvalid,
    TxMixed,
    TxOutside,
    TxProtocolError,
    TxTransient,
)
from hms.errors.tree import HmsError

TX_NOT_SUPPORTED = 1
TX_OK = 0
TX_OUTSIDE = -1
TX_ROLLBACK = -2
TX_MIXED = -3
TX_HAZARD = -4
TX_PROTOCOL_ERROR = -5
TX_ERROR = -6
TX_FAIL = -7
TX_EINVAL = -8
TX_COMMITTED = -9
TX_ESYSTEM = -99
TX_NO_BEGIN = -100
TX_ROLLBACK_NO_BEGIN = TX_ROLLBACK + TX_NO_BEGIN
TX_MIXED_NO_BEGIN = TX_MIXED + TX_NO_BEGIN
TX_HAZARD_NO_BEGIN = TX_HAZARD + TX_NO_BEGIN
TX_COMMITTED_NO_BEGIN = TX_COMMITTED + TX_NO_BEGIN


class CommitReturn(IntEnum):
    """When tx_commit() returns."""

    COMPLETED = 0
    DECISION_LOGGED = 1


class TransactionControl(IntEnum):
    """Whether the end of a transaction begins the next one."""

    UNCHAINED = 0
    CHAINED = 1


class TransactionState(IntEnum):
    """What can become of the transaction; NOT_ACTIVE is Tmax's."""

    NOT_ACTIVE = -1
    ACTIVE = 0
    TIMEOUT_ROLLBACK_ONLY = 1
    ROLLBACK_ONLY = 2


TX_COMMIT_COMPLETED = CommitReturn.COMPLETED
TX_COMMIT_DECISION_LOGGED = CommitReturn.DECISION_LOGGED
TX_UNCHAINED = TransactionControl.UNCHAINED
TX_CHAINED = TransactionControl.CHAINED
TX_ACTIVE = TransactionState.ACTIVE
TX_TIMEOUT_ROLLBACK_ONLY = TransactionState.TIMEOUT_ROLLBACK_ONLY
TX_ROLLBACK_ONLY = TransactionState.ROLLBACK_ONLY
TX_NOT_ACTIVE = TransactionState.NOT_ACTIVE

_CODES: dict[type[HmsError], int] = {
    TxOutside: TX_OUTSIDE,
    TransactionRolledBack: TX_ROLLBACK,
    TxMixed: TX_MIXED,
    TxHazard: TX_HAZARD,
    TxProtocolError: TX_PROTOCOL_ERROR,
    TxTransient: TX_ERROR,
    TxFatal: TX_FAIL,
    TxInvalid: TX_EINVAL,
    TxHeuristicCommit: TX_COMMITTED,
}


def tx_code(error: HmsError | None) -> int:
    """The TX code of an error that a tx function raised; with TX_NO_BEGIN when the next chained
    transaction could not begin."""
    code = TX_OK if error is None else _CODES.get(type(error), TX_FAIL)
    no_begin = TX_NO_BEGIN if error is not None and error.fields.get("no_begin") else 0
    return code + no_begin


__all__ = [
    "TX_ACTIVE",
    "TX_CHAINED",
    "TX_COMMITTED",
    "TX_COMMITTED_NO_BEGIN",
    "TX_COMMIT_COMPLETED",
    "TX_COMMIT_DECISION_LOGGED",
    "TX_EINVAL",
    "TX_ERROR",
    "TX_ESYSTEM",
    "TX_FAIL",
    "TX_HAZARD",
    "TX_HAZARD_NO_BEGIN",
    "TX_MIXED",
    "TX_MIXED_NO_BEGIN",
    "TX_NOT_ACTIVE",
    "TX_NOT_SUPPORTED",
    "TX_NO_BEGIN",
    "TX_OK",
    "TX_OUTSIDE",
    "TX_PROTOCOL_ERROR",
    "TX_ROLLBACK",
    "TX_ROLLBACK_NO_BEGIN",
    "TX_ROLLBACK_ONLY",
    "TX_TIMEOUT_ROLLBACK_ONLY",
    "TX_UNCHAINED",
    "CommitReturn",
    "TransactionControl",
    "TransactionState",
    "tx_code",
]
