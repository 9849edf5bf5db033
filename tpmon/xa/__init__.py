"""tpmon.xa: the XA side of distributed transactions: xids, codes and resource managers."""

from tpmon.xa.xid import Xid

__all__ = ["Xid"]
