"""Codes: what a call of XA is answered, with X/Open's numbers (xa.h)."""

import enum
from typing import NamedTuple


class Code(enum.IntEnum):
    """Those of X/Open's return codes that this resource manager gives."""

    OK = 0
    RDONLY = 3
    RETRY = 4
    HEURRB = 6
    HEURCOM = 7
    RBROLLBACK = 100
    RBCOMMFAIL = 101
    RBOTHER = 104
    RBTIMEOUT = 106
    RBTRANSIENT = 107
    RMERR = -3
    NOTA = -4
    INVAL = -5
    PROTO = -6
    DUPID = -8


class Answer(NamedTuple):
    """A code, and in words why it is not OK."""

    code: Code
    reason: str = ""

    def plain(self) -> dict[str, int | str]:
        """As a reply carries it."""
        return {"code": int(self.code), "reason": self.reason}


DONE = Answer(Code.OK)
UNKNOWN = Answer(Code.NOTA, "there is no such branch")

TMJOIN, TMRESUME = 0x00200000, 0x08000000
TMSUCCESS, TMSUSPEND, TMFAIL = 0x04000000, 0x02000000, 0x20000000
