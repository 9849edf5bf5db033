"""Which topics the configuration covers: those at and below the topic strings that it names."""

from collections.abc import Mapping

from hms.engine.topic import Pattern, Scheme, TopicObjects


class Known:
    """Configured topics, by name, with their topic strings."""

    def __init__(self, strings: Mapping[str, str]) -> None:
        self._names = frozenset(strings)
        self._objects: TopicObjects[str] = TopicObjects()
        for name, string in strings.items():
            self._objects.add(string, name)

    def has(self, topic: str, scheme: Scheme) -> bool:
        """Whether a topic, by name or as a pattern, can be one of them; TopicStringError."""
        return topic in self._names or self._objects.reaches(Pattern(topic, scheme))
