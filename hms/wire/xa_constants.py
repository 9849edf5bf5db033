"""Flags and return codes of X/Open XA (xa.h), with their values there."""

TMNOFLAGS = 0x00000000
TMREGISTER = 0x00000001
TMNOMIGRATE = 0x00000002
TMUSEASYNC = 0x00000004
TMASYNC = 0x80000000
TMONEPHASE = 0x40000000
TMFAIL = 0x20000000
TMNOWAIT = 0x10000000
TMRESUME = 0x08000000
TMSUCCESS = 0x04000000
TMSUSPEND = 0x02000000
TMSTARTRSCAN = 0x01000000
TMENDRSCAN = 0x00800000
TMMULTIPLE = 0x00400000
TMJOIN = 0x00200000
TMMIGRATE = 0x00100000

# The resource manager rolled the branch back, and why.
XA_RBBASE = 100
XA_RBROLLBACK = 100
XA_RBCOMMFAIL = 101
XA_RBDEADLOCK = 102
XA_RBINTEGRITY = 103
XA_RBOTHER = 104
XA_RBPROTO = 105
XA_RBTIMEOUT = 106
XA_RBTRANSIENT = 107
XA_RBEND = 107

# Done, or done in its own way.
XA_OK = 0
XA_RDONLY = 3
XA_RETRY = 4
XA_HEURMIX = 5
XA_HEURRB = 6
XA_HEURCOM = 7
XA_HEURHAZ = 8
XA_NOMIGRATE = 9

# Errors.
XAER_ASYNC = -2
XAER_RMERR = -3
XAER_NOTA = -4
XAER_INVAL = -5
XAER_PROTO = -6
XAER_RMFAIL = -7
XAER_DUPID = -8
XAER_OUTSIDE = -9

MEANINGS = {
    XA_OK: "XA_OK: done",
    XA_RDONLY: "XA_RDONLY: the branch changed nothing and has ended",
    XA_RETRY: "XA_RETRY: nothing was done; try again",
    XA_HEURMIX: "XA_HEURMIX: the branch was partly committed and partly rolled back by itself",
    XA_HEURRB: "XA_HEURRB: the branch was rolled back by itself",
    XA_HEURCOM: "XA_HEURCOM: the branch was committed by itself",
    XA_HEURHAZ: "XA_HEURHAZ: the branch may have been completed by itself",
    XA_NOMIGRATE: "XA_NOMIGRATE: the suspended branch must be resumed where it was",
    XA_RBROLLBACK: "XA_RBROLLBACK: rolled back",
    XA_RBCOMMFAIL: "XA_RBCOMMFAIL: rolled back, a connection failed inside the resource manager",
    XA_RBDEADLOCK: "XA_RBDEADLOCK: rolled back, a deadlock",
    XA_RBINTEGRITY: "XA_RBINTEGRITY: rolled back, an integrity rule was broken",
    XA_RBOTHER: "XA_RBOTHER: rolled back, for another reason",
    XA_RBPROTO: "XA_RBPROTO: rolled back, a protocol error inside the resource manager",
    XA_RBTIMEOUT: "XA_RBTIMEOUT: rolled back, the branch took too long",
    XA_RBTRANSIENT: "XA_RBTRANSIENT: rolled back, the work may be tried again",
    XAER_ASYNC: "XAER_ASYNC: an asynchronous operation is outstanding",
    XAER_RMERR: "XAER_RMERR: an error in the resource manager",
    XAER_NOTA: "XAER_NOTA: the branch is not known",
    XAER_INVAL: "XAER_INVAL: an argument is wrong",
    XAER_PROTO: "XAER_PROTO: a call in the wrong state or order",
    XAER_RMFAIL: "XAER_RMFAIL: the resource manager cannot be reached",
    XAER_DUPID: "XAER_DUPID: the branch exists already",
    XAER_OUTSIDE: "XAER_OUTSIDE: work outside a global transaction is going on",
}
_NAMES = {code: text.partition(":")[0] for code, text in MEANINGS.items()}


def code_name(code: int) -> str:
    """The name of a return code, as "XAER_NOTA"."""
    return _NAMES.get(code, f"XA({code})")


def is_rolled_back(code: int) -> bool:
    """Whether the code says that the branch was rolled back: one of XA_RB*."""
    return XA_RBBASE <= code <= XA_RBEND


__all__ = [
    "MEANINGS",
    "TMASYNC",
    "TMENDRSCAN",
    "TMFAIL",
    "TMJOIN",
    "TMMIGRATE",
    "TMMULTIPLE",
    "TMNOFLAGS",
    "TMNOMIGRATE",
    "TMNOWAIT",
    "TMONEPHASE",
    "TMREGISTER",
    "TMRESUME",
    "TMSTARTRSCAN",
    "TMSUCCESS",
    "TMSUSPEND",
    "TMUSEASYNC",
    "XAER_ASYNC",
    "XAER_DUPID",
    "XAER_INVAL",
    "XAER_NOTA",
    "XAER_OUTSIDE",
    "XAER_PROTO",
    "XAER_RMERR",
    "XAER_RMFAIL",
    "XA_HEURCOM",
    "XA_HEURHAZ",
    "XA_HEURMIX",
    "XA_HEURRB",
    "XA_NOMIGRATE",
    "XA_OK",
    "XA_RBBASE",
    "XA_RBCOMMFAIL",
    "XA_RBDEADLOCK",
    "XA_RBEND",
    "XA_RBINTEGRITY",
    "XA_RBOTHER",
    "XA_RBPROTO",
    "XA_RBROLLBACK",
    "XA_RBTIMEOUT",
    "XA_RBTRANSIENT",
    "XA_RDONLY",
    "XA_RETRY",
    "code_name",
    "is_rolled_back",
]
