"""A pager: prints a line when an alert of the node begins, and when it ends.

    python examples/alert_pager.py
    python examples/alert_pager.py stuck_queue

On a secured node its user needs `subscribe topic:HMS/alert/#` and `view node:*`.
"""

import os
import sys

import hms

ADDRESS = os.environ.get("HMS_ADDRESS", "tcp://127.0.0.1:7700")


def main(name: str = "#") -> None:
    """First what has begun already; a begin that comes meanwhile may be told twice."""
    with hms.connect(ADDRESS) as connection, connection.session() as session:
        alerts = session.consumer(hms.Topic(f"HMS/alert/{name}"))
        for one in connection.administer("alert.list", {})["active"]:
            if name in ("#", one["alert"]):
                print("active", one["alert"], one["destination"], one["text"], flush=True)
        print("waiting", flush=True)
        for message in alerts:
            said = message.properties
            place = said["destination"] or said["node"]
            print(said["state"], said["alert"], place, message.body, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
