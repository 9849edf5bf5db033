"""Numbers of X/Open XATMI that cross the wire: how a service ended, what ended a conversation."""

TPFAIL, TPSUCCESS = 1, 2
TPEV_DISCONIMM, TPEV_SVCERR, TPEV_SVCFAIL, TPEV_SVCSUCC = 0x01, 0x02, 0x04, 0x08
