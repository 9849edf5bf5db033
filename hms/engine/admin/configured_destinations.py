"""What the configuration has and the log does not know yet, or knows otherwise."""

from hms.engine.groups.message_sort import MessageSort
from hms.engine.log.state_records import applied
from hms.engine.queue.destinations import Topic
from hms.engine.settings import DEAD_LETTER_QUEUE, DestinationSettings, SubscriptionSettings
from hms.engine.state import State
from hms.engine.topic import Scheme, Wants
from hms.engine.topic.topic_space import BASE_TOPIC
from hms.errors.catalogue import TopicStringChanged
from hms.records import Definition, Record, defined


def define_destinations(state: State) -> list[Record]:
    """Queues and topic objects that are new; TopicStringChanged."""
    records = []
    wanted = [DestinationSettings("queue", DEAD_LETTER_QUEUE), *state.settings.destinations]
    if state.settings.is_topics_open:
        wanted.append(DestinationSettings("topic", BASE_TOPIC))
    for settings in wanted:
        table = state.queues if settings.kind == "queue" else state.topics
        found = table.get(settings.name)
        if found is None:
            string = settings.topic_string if settings.topic_string != settings.name else ""
            number = state.take_number()
            definition = Definition(number, settings.kind, settings.name, topic_string=string)
            records.append(applied(state, defined(definition)))
        elif isinstance(found, Topic):
            _check_same(found, settings)
    return records


def _check_same(topic: Topic, settings: DestinationSettings) -> None:
    """A topic object keeps its topic string for ever (CT-09): who subscribed to it under that name
    meant this one."""
    wanted = settings.topic_string or settings.name
    if topic.string != wanted:
        raise TopicStringChanged(topic=topic.name, string=topic.string, wanted=wanted)


def define_subscriptions(state: State) -> list[Record]:
    """Configured durable subscriptions (F-E5); what changed holds for what comes now."""
    records = []
    for wanted in state.settings.subscriptions:
        topic, pattern = state.space.wanted(wanted.topic, "", wanted.scheme)
        known = state.space.named(pattern, wanted.name, is_durable=True)
        number = known.number if known else state.take_number()
        owner = known.definition.topic if known else topic.number
        string = "" if pattern.text == topic.string else pattern.text
        if known is not None:
            string = known.definition.topic_string
        definition = _definition(state, wanted, number, owner, string)
        if known is None or known.definition != definition:
            records.append(applied(state, defined(definition)))
        sort = MessageSort(wanted.sort) if wanted.sort is not None else None
        state.places[number].line.sort_by(sort)  # also what was recovered (F-C15)
    return records


def _definition(
    state: State, wanted: SubscriptionSettings, number: int, topic: int, string: str
) -> Definition:
    return Definition(
        number,
        "subscription",
        wanted.name,
        topic,
        wanted.selector,
        is_shared=True,
        is_configured=True,
        topic_string=string,
        scheme="" if wanted.scheme == Scheme.TOPIC else wanted.scheme,
        queue=state.queues[wanted.queue].number if wanted.queue else 0,
        correlation_id=wanted.correlation_id,
        retained="" if wanted.retained == Wants.ALL else wanted.retained,
    )
