"""Flags and numbers of Tmax's atmi.h and tmaxapi.h, with their values there."""

from hms.wire.service_codes import (
    TPEV_DISCONIMM,
    TPEV_SVCERR,
    TPEV_SVCFAIL,
    TPEV_SVCSUCC,
    TPFAIL,
    TPSUCCESS,
)

TPNOBLOCK = 0x0001
TPSIGRSTRT = 0x0002
TPNOREPLY = 0x0004
TPNOTRAN = 0x0008
TPTRAN = 0x0010
TPNOTIME = 0x0020
TPNOGETANY = 0x0040
TPGETANY = 0x0080
TPNOCHANGE = 0x0100
TPBLOCK = 0x0200
TPCONV = TPFLOWCONTROL = TPURGENT = 0x0400
TPSENDONLY = 0x0800
TPRECVONLY = 0x1000
TPUDP = 0x2000
TPRQS = 0x4000
TPFUNC = TPABSOLUTE = TPACK = 0x8000

# Flags of tpstart().
TPUNSOL_HND, TPUNSOL_IGN, TPUNSOL_POLL = 0x01, 0x02, 0x04
TPUNIQUE, TPONLYONE, TPMULTICONTEXTS = 0x10, 0x20, 0x40

# Events of a conversation.
TPEV_CONVCLOSE, TPEV_SENDONLY = 0x10, 0x20

# How an event reaches its subscriber: by a service, or in the process.
TPEV_SVC, TPEV_PROC = 1, 2

# Types of unsolicited messages.
UNSOL_TPPOST, UNSOL_TPBROADCAST, UNSOL_TPNOTIFY, UNSOL_TPSENDTOCLI, UNSOL_ANY = 1, 2, 3, 4, 5

# How a service ends.
TPEXIT, TPDOWN = 4, 8

# Values of tperrno.
TPEBADDESC = 2
TPEBLOCK = 3
TPEINVAL = 4
TPELIMIT = 5
TPENOENT = 6
TPEOS = 7
TPEPROTO = 9
TPESVCERR = 10
TPESVCFAIL = 11
TPESYSTEM = 12
TPETIME = 13
TPETRAN = 14
TPGOTSIG = 15
TPEITYPE = 17
TPEOTYPE = 18
TPEEVENT = 22
TPEMATCH = 23
TPENOREADY = 24
TPESECURITY = 25
TPEQFULL = 26
TPEQPURGE = 27
TPECLOSE = 28
TPESVRDOWN = 29
TPEPRESVC = 30
TPERDOWN = 31
TPERDCLOSE = 32

MEANINGS = {
    0: "no error",
    TPEBADDESC: "TPEBADDESC: a descriptor is not valid",
    TPEBLOCK: "TPEBLOCK: the call would have to wait and was told not to",
    TPEINVAL: "TPEINVAL: an argument is wrong",
    TPELIMIT: "TPELIMIT: a limit is reached",
    TPENOENT: "TPENOENT: a name is not known",
    TPEOS: "TPEOS: the operating system refused",
    TPEPROTO: "TPEPROTO: a call in the wrong state or order",
    TPESVCERR: "TPESVCERR: a server failed while it ran the service",
    TPESVCFAIL: "TPESVCFAIL: the service itself reported failure",
    TPESYSTEM: "TPESYSTEM: the node or its store failed",
    TPETIME: "TPETIME: the time is over",
    TPETRAN: "TPETRAN: the transaction could not be used or ended otherwise",
    TPGOTSIG: "TPGOTSIG: a signal came",
    TPEITYPE: "TPEITYPE: the type of the input is not accepted",
    TPEOTYPE: "TPEOTYPE: the type of the output is not accepted",
    TPEEVENT: "TPEEVENT: an event of the conversation",
    TPEMATCH: "TPEMATCH: the name is taken by something else",
    TPENOREADY: "TPENOREADY: the node or service is not ready yet",
    TPESECURITY: "TPESECURITY: not allowed",
    TPEQFULL: "TPEQFULL: a destination or the node's store is full",
    TPEQPURGE: "TPEQPURGE: purged from the queue",
    TPECLOSE: "TPECLOSE: the connection is closed or lost",
    TPESVRDOWN: "TPESVRDOWN: the server is down",
    TPEPRESVC: "TPEPRESVC: the service was refused before it began",
    TPERDOWN: "TPERDOWN: the remote side is down",
    TPERDCLOSE: "TPERDCLOSE: the remote side has closed",
}

__all__ = [
    "TPABSOLUTE",
    "TPACK",
    "TPBLOCK",
    "TPCONV",
    "TPDOWN",
    "TPEBADDESC",
    "TPEBLOCK",
    "TPECLOSE",
    "TPEEVENT",
    "TPEINVAL",
    "TPEITYPE",
    "TPELIMIT",
    "TPEMATCH",
    "TPENOENT",
    "TPENOREADY",
    "TPEOS",
    "TPEOTYPE",
    "TPEPRESVC",
    "TPEPROTO",
    "TPEQFULL",
    "TPEQPURGE",
    "TPERDCLOSE",
    "TPERDOWN",
    "TPESECURITY",
    "TPESVCERR",
    "TPESVCFAIL",
    "TPESVRDOWN",
    "TPESYSTEM",
    "TPETIME",
    "TPETRAN",
    "TPEV_CONVCLOSE",
    "TPEV_DISCONIMM",
    "TPEV_PROC",
    "TPEV_SENDONLY",
    "TPEV_SVC",
    "TPEV_SVCERR",
    "TPEV_SVCFAIL",
    "TPEV_SVCSUCC",
    "TPEXIT",
    "TPFAIL",
    "TPFLOWCONTROL",
    "TPFUNC",
    "TPGETANY",
    "TPGOTSIG",
    "TPMULTICONTEXTS",
    "TPNOBLOCK",
    "TPNOCHANGE",
    "TPNOGETANY",
    "TPNOREPLY",
    "TPNOTIME",
    "TPNOTRAN",
    "TPONLYONE",
    "TPRECVONLY",
    "TPRQS",
    "TPSENDONLY",
    "TPSIGRSTRT",
    "TPSUCCESS",
    "TPTRAN",
    "TPUDP",
    "TPUNIQUE",
    "TPUNSOL_HND",
    "TPUNSOL_IGN",
    "TPUNSOL_POLL",
    "TPURGENT",
    "UNSOL_ANY",
    "UNSOL_TPBROADCAST",
    "UNSOL_TPNOTIFY",
    "UNSOL_TPPOST",
    "UNSOL_TPSENDTOCLI",
]
