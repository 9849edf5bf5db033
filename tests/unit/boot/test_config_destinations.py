"""hms.conf: what queues, topics and subscriptions may say of one another, and what comes of it."""

import pytest

from hms.boot import compose
from hms.boot.config import effective, load
from hms.engine.effects import Effects
from hms.engine.engine import Engine
from hms.engine.settings import SubscriptionSettings
from hms.errors.catalogue import ConfigError

NODE = "[node.N1]\n"
TWO_NODES = """
[node.N1]
[node.N2]
listen = ["tcp://127.0.0.1:7701"]
[svrgroup.g1]
NODENAME = "N1"
[svrgroup.g2]
NODENAME = "N2"
HMSINDEX = 2
[hms.queue.everywhere]
[hms.queue.second]
SVGNAME = "g2"
[hms.topic.news]
[hms.topic.local]
SVGNAME = "g2"
"""


@pytest.fixture
def faults(write):
    """The faults of a text, without the file's name and the line."""

    def run(text):
        path = write(text)
        with pytest.raises(ConfigError) as caught:
            load(path)
        lines = caught.value.report.splitlines()
        return [line.removeprefix(f"{path}:").split(": ", 1)[1] for line in lines]

    return run


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_where_failed_and_expired_messages_go_reaches_the_engine(write, kind):
    """F-C9, F-C10: a key that is read and not passed on loses messages."""
    text = f"""{NODE}[hms.queue.late]
[hms.{kind}.A]
redelivery_limit = 5
redelivery_delay_s = 1.5
dead_letter = ""
expired_to = "late"
"""
    config = load(write(text))

    every = compose.engine_settings(config, config.node()).destinations
    settings = next(one for one in every if one.name == "A")
    assert (settings.kind, settings.name, settings.redelivery_limit) == (kind, "A", 5)
    assert settings.redelivery_delay_ms == 1500
    assert (settings.dead_letter, settings.expired_to) == ("", "late")


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_without_a_word_expired_messages_are_discarded_and_failed_ones_kept(write, kind):
    """The defaults that the page promises."""
    config = load(write(f"{NODE}[hms.{kind}.A]\n"))

    (place,) = _places(config)
    assert (place.dead_letter, place.expired_to, place.redelivery_delay_ms) == ("HMS.DLQ", "", 0)


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_what_a_node_says_holds_for_destinations_that_do_not_say_it(write, kind):
    """One line for a node, instead of three for each destination; also for those made later."""
    text = f"""
[node.N1]
dead_letter = "graves"
expired_to = "late"
redelivery_delay_s = 2
[hms.queue.graves]
[hms.queue.late]
[hms.{kind}.A]
[hms.{kind}.B]
dead_letter = "HMS.DLQ"
expired_to = ""
redelivery_delay_s = 0
"""
    config = load(write(text))

    found = [(p.dead_letter, p.expired_to, p.redelivery_delay_ms) for p in _places(config)]
    assert found == [("graves", "late", 2000), ("HMS.DLQ", "", 0)]


def _places(config):
    """The destinations called A and B, of a new engine."""
    engine = Engine(compose.engine_settings(config, config.node()))
    engine.boot(1, is_warm=True, version="test", fx=Effects())
    state = engine.state
    every = {**state.queues, **state.topics}
    return [every[name] for name in ("A", "B") if name in every]


@pytest.mark.parametrize("key", ["dead_letter", "expired_to"])
def test_a_node_names_queues_that_live_on_it(faults, key):
    """Else its letters would have nowhere to go."""
    text = TWO_NODES.replace("[node.N1]\n", f"[node.N1]\n{key} = 'second'\n")

    assert faults(f"[node.N1]\n{key} = 'latte'\n[hms.queue.late]\n") == [
        f"[node.N1] {key}: there is no queue 'latte' (did you mean 'late'?)"
    ]
    assert faults(text) == [f"[node.N1] {key}: queue 'second' does not live on node N1"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "[hms.queue.A]\nexpired_to = 'B'\n",
            "[hms.queue.A] expired_to: there is no queue 'B'",
        ),
        (
            "[hms.queue.late]\n[hms.topic.A]\nexpired_to = 'latte'\n",
            "[hms.topic.A] expired_to: there is no queue 'latte' (did you mean 'late'?)",
        ),
        (
            "[hms.topic.T]\n[hms.topic.A]\ndead_letter = 'T'\n",
            "[hms.topic.A] dead_letter: there is no queue 'T'",
        ),
        (
            "[hms.queue.A]\nexpired_to = 'A'\n",
            "[hms.queue.A] expired_to: a queue cannot be its own",
        ),
        (
            "[hms.queue.'HMS.DLQ']\ndead_letter = 'HMS.DLQ'\n",
            '[hms.queue."HMS.DLQ"] dead_letter: a queue cannot be its own',
        ),
        (
            "[hms.queue.A]\nredelivery_delay_s = 86401\n",
            "[hms.queue.A] redelivery_delay_s: 86401 is out of range: 0 to 86400",
        ),
        (
            "[hms.queue.A]\ndead_letter = 5\n",
            "[hms.queue.A] dead_letter: 5: a name has 1 to 255 printable characters",
        ),
    ],
)
def test_a_queue_for_letters_that_cannot_be_is_refused(faults, text, fault):
    """Found at boot, not when the first message has nowhere to go."""
    assert faults(NODE + text) == [fault]


@pytest.mark.parametrize("key", ["dead_letter", "expired_to"])
def test_a_queue_for_letters_lives_on_every_node_of_its_place(write, faults, key):
    """A node cannot put a letter into a queue that it does not have."""
    text = f"{TWO_NODES}[hms.queue.A]\n{key} = 'second'\n"
    assert faults(text) == [f"[hms.queue.A] {key}: queue 'second' does not live on node N1"]

    assert load(write(text + "SVGNAME = 'g2'\n"))
    assert load(write(text.replace("'second'", "'everywhere'")))
    assert load(write(text.replace("'second'", "'HMS.DLQ'")))


SUBSCRIPTIONS = """
[hms.subscription.all]
topic = "news"
selector = " Region = 'EU' "
[hms.subscription.one]
topic = "news"
SVGNAME = "g2"
[hms.subscription.two]
topic = "local"
"""


def test_a_configured_subscription_reaches_the_nodes_of_its_topic(write):
    """F-E5: it exists where messages are published, and nowhere else."""
    config = load(write(TWO_NODES + SUBSCRIPTIONS))
    first, second = (compose.engine_settings(config, node) for node in config.nodes.values())

    every = SubscriptionSettings("all", "news", "Region = 'EU'")
    one, two = SubscriptionSettings("one", "news"), SubscriptionSettings("two", "local")
    assert first.subscriptions == (every,)
    assert second.subscriptions == (every, one, two)


def test_a_configured_subscription_is_shown_among_what_holds(write):
    """The command config show prints a file that could be used itself."""
    shown = effective(load(write(TWO_NODES + SUBSCRIPTIONS)))["hms"]["subscription"]

    plain = {
        "selector": "",
        "scheme": "TOPIC",
        "queue": "",
        "correlation_id": "",
        "retained": "ALL",
        "sort_key": "",
        "sort_type": "STRING",
        "sort_direction": "ASCENDING",
    }
    assert shown["one"] == {"topic": "news", "SVGNAME": "g2", **plain}
    assert shown["two"] == {"topic": "local", **plain}


def test_a_subscription_may_name_a_topic_string_that_a_configured_topic_covers(write):
    """PUBSUB §5: by the topic object's name, or by what lies at or below its topic string."""
    text = """[hms.queue.Q]
[hms.topic.FOOTBALL]
topic_string = "Sports/Football"
persistent_delivery = "ALL"
[hms.subscription.results]
topic = "Sports/*/Results"
scheme = "CHARACTER"
queue = "Q"
"""
    config = load(write(NODE + text))
    settings = compose.engine_settings(config, config.node())

    (found,) = settings.subscriptions
    assert (found.topic, found.scheme, found.queue) == ("Sports/*/Results", "CHARACTER", "Q")
    (topic,) = [d for d in settings.destinations if d.kind == "topic"]
    assert (topic.topic_string, topic.persistent_delivery) == ("Sports/Football", "ALL")


def test_the_engine_has_a_configured_subscription_when_it_has_booted(write):
    """What the configuration hands over is what the engine takes."""
    config = load(write(f"{NODE}[hms.topic.T]\n[hms.subscription.S]\ntopic = 'T'\n"))
    engine = Engine(compose.engine_settings(config, config.node()))
    engine.recovery().finish()
    engine.boot(1, None, "1", Effects())

    assert engine.state.topics["T"].durable("S") is not None


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        (
            "",
            "needs topic: The topic, by its name or its topic string, with wildcards if need be.",
        ),
        ("topic = 'elsewhere/#'", "topic: there is no topic 'elsewhere/#'"),
        ("topic = 'news'\nqueue = 'nowhere'", "queue: there is no queue 'nowhere'"),
        (
            "topic = 'news/a%b'\nscheme = 'CHARACTER'",
            "topic: % is followed by b; write %% for a %",
        ),
        ("topic = ' '", """topic: must be a topic such as "Sports/Football", not ' '"""),
        ("topic = 'new'", "topic: there is no topic 'new' (did you mean 'news'?)"),
        ("topic = 'everywhere'", "topic: there is no topic 'everywhere'"),
        ("topic = 'local'\nSVGNAME = 'g1'", "topic: 'local' does not live on node N1"),
        (
            "topic = 'news'\nSVGNAME = 'g9'",
            "SVGNAME: there is no svrgroup 'g9' (did you mean 'g1'?)",
        ),
        (
            "topic = 'news'\nselector = 'a = '",
            "selector: position 4: found the end, expected a value",
        ),
        (
            "topic = 'news'\nselector = 5",
            """selector: must be a selector, such as "Region = 'EU'", not 5""",
        ),
        ("topic = 'news'\nBOOT = 'COLD'", "BOOT: is that of its topic"),
    ],
)
def test_a_subscription_that_cannot_be_is_refused(faults, keys, fault):
    """A selector that is wrong is told with its position, before anything is published."""
    (said,) = faults(f"{TWO_NODES}[hms.subscription.S]\n{keys}\n")

    assert said.split(" (did")[0] == f"[hms.subscription.S] {fault}".split(" (did")[0]


def test_what_slow_subscribers_may_hold_reaches_the_engine(write):
    """F-E8."""
    config = load(write(f'{NODE}max_pending_bytes = "48 MiB"\n'))

    assert compose.engine_settings(config, config.node()).passing_bytes_max == 48 << 20
