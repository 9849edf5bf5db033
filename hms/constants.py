"""The constants of the HMS API, with the numbers of Tmax's hmsapi.h; ours are said to be ours."""

import enum

from field_buffer import FB_CARRAY as HMS_CARRAY
from field_buffer import FB_CHAR as HMS_CHAR
from field_buffer import FB_DOUBLE as HMS_DOUBLE
from field_buffer import FB_FLOAT as HMS_FLOAT
from field_buffer import FB_INT as HMS_INT
from field_buffer import FB_LONG as HMS_LONG
from field_buffer import FB_SHORT as HMS_SHORT
from field_buffer import FB_STRING as HMS_STRING


class AckMode(enum.IntEnum):
    """How received messages are acknowledged. NONE is ours."""

    AUTO = 0
    DUPS_OK = 1
    CLIENT = 2
    NONE = 3


class DeliveryMode(enum.IntEnum):
    """Whether a message survives a crash of the node."""

    NON_PERSISTENT = 0
    PERSISTENT = 1


class BodyKind(enum.IntEnum):
    """What a body is; the numbers of the wire."""

    CARRAY = 0
    TEXT = 1
    MAP = 2
    STREAM = 3
    OBJECT = 4
    FILE = 5
    NONE = 6


HMS_AUTO_ACK, HMS_DUPS_OK_ACK, HMS_CLIENT_ACK = 0, 1, 2
HMS_NONE_ACK = 3  # ours
HMS_NORMAL_SESSION, HMS_TRANSACTED_SESSION, HMS_XA_SESSION, HMS_ASYNC_SESSION = 0, 1, 2, 3
HMS_QUEUE, HMS_TOPIC, HMS_DURABLE = 0, 1, 2
HMS_DLV_NON_PERSISTENT, HMS_DLV_PERSISTENT = 0, 1
HMS_ACK_ONE, HMS_ACK_UPTHROUGH = 0x01, 0x02
HMS_QB_FIRST = 0x01
TPFAIL_ACK = -1

# Reserved properties: the names under which a message's header is read.
HMSMessageID = "$MessageID"
HMSTimeStamp = "$TimeStamp"
HMSDestination = "$Destination"
HMSDeliveryMode = "$DeliveryMode"
HMSExpiration = "$Expiration"
HMSCorrelationID = "$CorrelationID"
HMSReplyTo = "$ReplyTo"
HMSRedelivered = "$Redelivered"
HMSType = "$Type"
HMSPriority = "$Priority"
HMSDeliveryCount = "$DeliveryCount"  # ours

# Tmax's internal properties; the names are kept, nothing sets them.
HMSStartSec, HMSStartUsec = "@HMSStartSec@", "@HMSStartUsec@"
HMSTmsName = "@HMSTmsName@"
HMSCallSvcname1 = "@HMSCallSvcNM1@"
HMSCallSvcname2 = "@HMSCallSvcNM2@"
HMSCallSvcname3 = "@HMSCallSvcNM3@"
HMSCallSvcname4 = "@HMSCallSvcNM4@"
HMSCallSvcname5 = "@HMSCallSvcNM5@"
HMSCallSvcname6 = "@HMSCallSvcNM6@"
HMSCallSvcname7 = "@HMSCallSvcNM7@"
HMSCallSvcname8 = "@HMSCallSvcNM8@"
HMSCallSvcname9 = "@HMSCallSvcNM9@"
HMSCallSvcname10 = "@HMSCallSvcNM10@"
HMSCallSvcname11 = "@HMSCallSvcNM11@"
HMSCallSvcname12 = "@HMSCallSvcNM12@"
HMSCallSvcname13 = "@HMSCallSvcNM13@"
HMSCallSvcname14 = "@HMSCallSvcNM14@"
HMSCallSvcname15 = "@HMSCallSvcNM15@"
HMSCallSvcname16 = "@HMSCallSvcNM16@"

__all__ = [
    "HMS_ACK_ONE",
    "HMS_ACK_UPTHROUGH",
    "HMS_ASYNC_SESSION",
    "HMS_AUTO_ACK",
    "HMS_CARRAY",
    "HMS_CHAR",
    "HMS_CLIENT_ACK",
    "HMS_DLV_NON_PERSISTENT",
    "HMS_DLV_PERSISTENT",
    "HMS_DOUBLE",
    "HMS_DUPS_OK_ACK",
    "HMS_DURABLE",
    "HMS_FLOAT",
    "HMS_INT",
    "HMS_LONG",
    "HMS_NONE_ACK",
    "HMS_NORMAL_SESSION",
    "HMS_QB_FIRST",
    "HMS_QUEUE",
    "HMS_SHORT",
    "HMS_STRING",
    "HMS_TOPIC",
    "HMS_TRANSACTED_SESSION",
    "HMS_XA_SESSION",
    "TPFAIL_ACK",
    "AckMode",
    "BodyKind",
    "DeliveryMode",
    "HMSCallSvcname1",
    "HMSCallSvcname2",
    "HMSCallSvcname3",
    "HMSCallSvcname4",
    "HMSCallSvcname5",
    "HMSCallSvcname6",
    "HMSCallSvcname7",
    "HMSCallSvcname8",
    "HMSCallSvcname9",
    "HMSCallSvcname10",
    "HMSCallSvcname11",
    "HMSCallSvcname12",
    "HMSCallSvcname13",
    "HMSCallSvcname14",
    "HMSCallSvcname15",
    "HMSCallSvcname16",
    "HMSCorrelationID",
    "HMSDeliveryCount",
    "HMSDeliveryMode",
    "HMSDestination",
    "HMSExpiration",
    "HMSMessageID",
    "HMSPriority",
    "HMSRedelivered",
    "HMSReplyTo",
    "HMSStartSec",
    "HMSStartUsec",
    "HMSTimeStamp",
    "HMSTmsName",
    "HMSType",
]
