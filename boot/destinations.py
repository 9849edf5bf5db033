"""Faults between queues, topics and subscriptions: names that lead nowhere, or to another node."""

from collections.abc import Callable

from hms.boot.check import Found, Report
from hms.boot.kinds import DEAD_LETTER_QUEUE, did_you_mean
from hms.boot.known_topics import Known
from hms.boot.sections import NODE, QUEUE, SUBSCRIPTION, TOPIC
from hms.errors.catalogue import TopicStringError

Homes = Callable[[Found], frozenset[str] | None]
"""The nodes on which something lives; None when its SVGNAME leads nowhere."""


def check_destinations(every: list[Found], homes: Homes, report: Report) -> None:
    """Report every fault between the destinations."""
    queues = {found.name: found for found in every if found.section is QUEUE}
    topics = {found.name: found for found in every if found.section is TOPIC}
    for topic in topics.values():
        if topic.name in queues or topic.name == DEAD_LETTER_QUEUE:
            report.add(topic.path, f"{topic.title} has the name of a queue; one of them must go")
    for place in (*queues.values(), *topics.values()):
        for key in ("dead_letter", "expired_to"):
            _check_target(place, key, queues, homes, report)
    _check_defaults(every, queues, homes, report)
    for queue in queues.values():
        if queue.values["listener"] and queue.values["message_group"] == "GATHER":
            text = f"{queue.title} listener: a service is called for each message, not for a list"
            report.add((*queue.path, "listener"), text)
    _check_exports([*queues.values(), *topics.values()], homes, report)
    for found in every:
        if found.section is SUBSCRIPTION and found.is_good("topic"):
            _check_topic(found, every, topics, homes, report)
        if found.section is SUBSCRIPTION:
            _check_target(found, "queue", queues, homes, report)


def _check_exports(places: list[Found], homes: Homes, report: Report) -> None:
    """Two destinations of a node do not share the name by which they are looked up."""
    seen: dict[str, list[Found]] = {}
    for place in places:
        name = place.values["export_name"] or place.name
        for other in seen.setdefault(name, []):
            is_said = "export_name" in place.given or "export_name" in other.given
            if is_said and (homes(other) or frozenset()) & (homes(place) or frozenset()):
                text = f"{place.title} export_name: {other.title} is looked up as {name!r} already"
                report.add((*place.path, "export_name"), text)
        seen[name].append(place)


def _check_target(
    place: Found, key: str, queues: dict[str, Found], homes: Homes, report: Report
) -> None:
    """A queue that keeps letters lives wherever these may come from."""
    wanted, path = place.values[key], (*place.path, key)
    if not wanted or key not in place.given or not place.is_good(key):
        return
    if place.section is QUEUE and wanted == place.name:
        report.add(path, f"{place.title} {key}: a queue cannot be its own")
    elif wanted not in queues and wanted != DEAD_LETTER_QUEUE:
        hint = did_you_mean(wanted, (*queues, DEAD_LETTER_QUEUE))
        report.add(path, f"{place.title} {key}: there is no queue {wanted!r}{hint}")
    elif wanted != DEAD_LETTER_QUEUE and (missing := _missing(place, queues[wanted], homes)):
        report.add(path, f"{place.title} {key}: queue {wanted!r} does not live on node {missing}")


def _check_defaults(
    every: list[Found], queues: dict[str, Found], homes: Homes, report: Report
) -> None:
    for node in every:
        if node.section is NODE:
            for key in ("dead_letter", "expired_to"):
                _check_default(node, key, queues, homes, report)


def _check_default(
    node: Found, key: str, queues: dict[str, Found], homes: Homes, report: Report
) -> None:
    """What a node says for its destinations is a queue that lives on it."""
    wanted, path = node.values[key], (*node.path, key)
    if not wanted or wanted == DEAD_LETTER_QUEUE or not node.is_good(key):
        return
    if wanted not in queues:
        hint = did_you_mean(wanted, (*queues, DEAD_LETTER_QUEUE))
        report.add(path, f"{node.title} {key}: there is no queue {wanted!r}{hint}")
        return
    there = homes(queues[wanted])
    if there is not None and node.name not in there:
        text = f"queue {wanted!r} does not live on node {node.name}"
        report.add(path, f"{node.title} {key}: {text}")


def _check_topic(
    subscription: Found,
    every: list[Found],
    topics: dict[str, Found],
    homes: Homes,
    report: Report,
) -> None:
    wanted, path = subscription.values["topic"], (*subscription.path, "topic")
    if wanted not in topics and _is_covered(subscription, every, topics, report):
        return
    if wanted not in topics:
        hint = did_you_mean(wanted, tuple(topics))
        report.add(path, f"{subscription.title} topic: there is no topic {wanted!r}{hint}")
    elif subscription.values["svgname"] is not None:
        missing = _missing(subscription, topics[wanted], homes)
        if missing:
            text = f"{subscription.title} topic: {wanted!r} does not live on node {missing}"
            report.add(path, text)


def _is_covered(
    subscription: Found, every: list[Found], topics: dict[str, Found], report: Report
) -> bool:
    """Whether a topic string leads to a configured topic, or need not."""
    known = Known({t.name: t.values["topic_string"] or t.name for t in topics.values()})
    wanted, scheme = subscription.values["topic"], subscription.values["scheme"]
    try:
        if known.has(wanted, scheme):
            return True
    except TopicStringError as fault:
        report.add((*subscription.path, "topic"), f"{subscription.title} topic: {fault.detail}")
        return True
    return any(found.section is NODE and found.values["open_topics"] for found in every)


def _missing(source: Found, target: Found, homes: Homes) -> str:
    """The nodes of the source on which there is no target."""
    at, there = homes(source), homes(target)
    return "" if at is None or there is None else ", ".join(sorted(at - there))
