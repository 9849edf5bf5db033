"""Topics: strings, patterns, and what finds one by the other. No I/O, no clock.

topic_strings, patterns   what topics and subscriptions are called (PUBSUB §3 … §5)
filter_index              which subscriptions a publication reaches
topic_tree, topic_objects which topics exist, and whose attributes they have (§3, §6)
retained, delivery_mode   what later subscribers get, and who has to take a publication (§8)
"""

from hms.engine.topic.delivery_mode import Delivery, Missed, check_delivery
from hms.engine.topic.filter_index import TopicIndex
from hms.engine.topic.patterns import Pattern, Scheme
from hms.engine.topic.retained import RetainedStore, Wants
from hms.engine.topic.topic_objects import TopicObjects
from hms.engine.topic.topic_strings import NO_LIMITS, TopicLimits, check_topic, is_given, join_topic
from hms.engine.topic.topic_tree import TopicNode, TopicTree

__all__ = [
    "NO_LIMITS",
    "Delivery",
    "Missed",
    "Pattern",
    "RetainedStore",
    "Scheme",
    "TopicIndex",
    "TopicLimits",
    "TopicNode",
    "TopicObjects",
    "TopicTree",
    "Wants",
    "check_delivery",
    "check_topic",
    "is_given",
    "join_topic",
]
