"""Three small services. Offer them with: hms serve hms.services.examples

ECHO        answers what it is sent
TOUPPER     answers a text in capital letters
ORDER_SVC   takes an order, {"item": "tea", "count": 2}, and answers what it costs; also as a
            listener of a queue
"""

from typing import Any

from tpmon import TPFAIL, Request, ServiceResult, service, tpreturn

PRICES_CENTS = {"coffee": 250, "tea": 200, "water": 100}
UNKNOWN_ITEM = 404
"""The rcode for an item that is not sold."""


@service("ECHO")
def echo(request: Request) -> Any:
    """Answer the same data."""
    return request.data


@service("TOUPPER")
def to_upper(request: Request) -> str:
    """Answer a text, or bytes of UTF-8, in capital letters."""
    data = request.data
    return (data.decode() if isinstance(data, bytes) else str(data)).upper()


@service("ORDER_SVC")
def order(request: Request) -> dict[str, Any] | ServiceResult:
    """Answer what an order costs; fail with UNKNOWN_ITEM for what is not sold."""
    item, count = request.data["item"], request.data.get("count", 1)
    if count < 1:
        raise ValueError(f"count is {count}")
    if item not in PRICES_CENTS:
        return tpreturn(TPFAIL, UNKNOWN_ITEM, {"item": item})
    return {"item": item, "count": count, "cents": count * PRICES_CENTS[item]}
