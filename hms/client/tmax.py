"""The hms_ functions of Tmax, over the connection that tpstart() opened in this thread or task.

Names, argument order and numbers are Tmax's; lengths, out-pointers and NULL results are not: a
function returns its result and raises its error, and gettperrno() tells the number as well.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from field_buffer.catalogue import IllegalState, InvalidArgument, ReceiveTimeout
from field_buffer.types import FieldValue, infer_type, make_typed
from hms.client.browser import Browser
from hms.client.consumer import Consumer
from hms.client.destinations import Destination, Queue, Topic
from hms.client.message import Message
from hms.client.producer import Producer
from hms.client.session import Session, open_session
from hms.constants import (
    HMS_ACK_ONE,
    HMS_ACK_UPTHROUGH,
    HMS_AUTO_ACK,
    HMS_DLV_PERSISTENT,
    HMS_DURABLE,
    HMS_NORMAL_SESSION,
    HMS_QB_FIRST,
    HMS_QUEUE,
    HMS_TOPIC,
    HMS_TRANSACTED_SESSION,
    AckMode,
)
from tpmon.context import current, keeps_tperrno

_END = 0x7FFF_FFFF
