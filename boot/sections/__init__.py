"""Every section of hms.conf and of its keys: what each may be, its default, and why it is there.

node_sections, listener_sections, replica_sections,
alert_sections, process_sections, destination_sections    the keys, each in one place
section                                   what follows from them
"""

from hms.boot.sections.alert_sections import ALERTS, Alerts
from hms.boot.sections.destination_sections import (
    QUEUE,
    SUBSCRIPTION,
    TOPIC,
    Queue,
    Subscription,
    Topic,
)
from hms.boot.sections.listener_sections import LISTENER, Listener
from hms.boot.sections.node_sections import DOMAIN, NODE, SVRGROUP, Domain, Group, Node
from hms.boot.sections.process_sections import (
    LETTER_HANDLER,
    RESOURCE,
    SERVER,
    SERVICE,
    LetterHandler,
    Resource,
    Server,
    Service,
)
from hms.boot.sections.replica_sections import ARBITER, REPLICA, Arbiter, Replica
from hms.boot.sections.section import ABSENT, Entry, Key, Named, Section, engine_settings

__all__ = [
    "ALERTS",
    "ARBITER",
    "DOMAIN",
    "LATER_SECTIONS",
    "LETTER_HANDLER",
    "LISTENER",
    "NODE",
    "QUEUE",
    "REPLICA",
    "RESOURCE",
    "SECTIONS",
    "SERVER",
    "SERVICE",
    "SUBSCRIPTION",
    "SVRGROUP",
    "TOPIC",
    "Alerts",
    "Arbiter",
    "Domain",
    "Entry",
    "Group",
    "Key",
    "LetterHandler",
    "Listener",
    "Named",
    "Node",
    "Queue",
    "Replica",
    "Resource",
    "Section",
    "Server",
    "Service",
    "Subscription",
    "Topic",
    "engine_settings",
]

SECTIONS = (
    *(DOMAIN, NODE, LISTENER, SVRGROUP, ARBITER, REPLICA, ALERTS, SERVER, SERVICE, RESOURCE),
    LETTER_HANDLER,
    *(QUEUE, TOPIC, SUBSCRIPTION),
)

LATER_SECTIONS = {
    "gateway": "is not needed: HMSPORT of [svrgroup.NAME] makes a cluster",
    "routing": ABSENT,
    "rq": f"{ABSENT}; use [hms.queue.NAME]",
    "cluster": "is not needed: HMSPORT of [svrgroup.NAME] makes one of the nodes of the file",
    "bridge": f"bridges: {ABSENT}",
    "user": f"logins are not checked: {ABSENT}",
    "group": f"logins are not checked: {ABSENT}",
    "acl": f"logins are not checked: {ABSENT}",
    "store": "stands in [node.NAME] as a key",
}
