"""What a publication costs among ever more subscriptions of which always 8 match.

    python -m bench.topics [--json] [--rounds N] [--plot topics.svg]

It measures the index alone, over 1,000 different topics, with four mixtures of subscriptions, and
the whole engine, from a SEND to the deliveries of its 8 copies. All sizes take turns, so that noise
disturbs them alike, and each one's best round counts, in processor time. Only the ratio to the
smallest size says something; 1.00 is flat.
"""

import argparse
import json
import random
import time
from collections.abc import Iterator

from bench.plot import picture_file, plot
from hms.engine.effects import Effects
from hms.engine.engine import ConsumerRequest, Engine
from hms.engine.settings import EngineSettings
from hms.engine.topic import Pattern, Scheme, TopicIndex
from hms.wire.packed_messages import ROW, pack_messages

SIZES = (10, 1_000, 10_000)
MATCHES = 8
TOPICS = [f"shop/eu{i % 7}/dept{i % 50}/order{i}" for i in range(1_000)]
MATCHING = {
    "exact": ["shop/#", "#", "shop/+/+/+", "+/+/+/+", "shop/+/#", "#/+", "+/#", "shop/#/+"],
    "levels": ["shop/#", "#", "shop/+/+/+", "+/+/+/+", "shop/+/#", "#/+", "+/#", "shop/#/+"],
    "any place": ["shop/#", "#", "shop/+/+/+", "+/+/+/+", "shop/+/#", "#/+", "+/#", "shop/#/+"],
    "characters": ["shop*", "*", "sho?*", "*/order*", "shop/*", "s*", "shop/eu*", "*dept*"],
}
OTHERS = {
    "exact": ["shop/eu{a}/dept{b}/other{n}"],
    "levels": ["shop/eu{a}/dept{b}/other{n}/#", "other{n}/+/#", "shop/+/dept{b}/other{n}"],
    "any place": ["#/other{n}", "+/eu{a}/#/other{n}", "#/dept{b}/#/other{n}", "+/+/other{n}/#"],
    "characters": ["shop/eu{a}/other{n}/*", "*/other{n}", "oth?r{n}/*x"],
}


def build(kind: str, size: int) -> TopicIndex[int]:
    """An index with MATCHES subscriptions that match every topic and others that match none."""
    rng = random.Random(size)
    scheme = Scheme.CHARACTER if kind == "characters" else Scheme.TOPIC
    texts = [*MATCHING[kind], *other_patterns(kind, size - MATCHES, rng)]
    rng.shuffle(texts)
    index: TopicIndex[int] = TopicIndex()
    for order, text in enumerate(texts):
        index.add(Pattern(text, scheme), order, order)
    return index


def other_patterns(kind: str, count: int, rng: random.Random) -> Iterator[str]:
    """Patterns that match none of the topics, each another one."""
    shapes = OTHERS[kind]
    for n in range(count):
        shape = shapes[n % len(shapes)]
        yield shape.format(n=n, a=rng.randrange(7), b=rng.randrange(50))


def publish(index: TopicIndex[int]) -> float:
    """Publications per second; each finds exactly MATCHES subscriptions."""
    match = index.match
    started = time.process_time()
    found = sum([len(match(topic)) for topic in TOPICS])
    elapsed_s = time.process_time() - started
    assert found == MATCHES * len(TOPICS)
    return len(TOPICS) / elapsed_s


class WholeEngine:
    """An engine with one publisher and as many subscribers as wanted, which take all they get; 0:
    who makes it adds them."""

    def __init__(self, size: int) -> None:
        self.engine = engine = Engine(EngineSettings(is_topics_open=True))
        engine.recovery().finish()
        engine.boot(1, None, "bench", Effects())
        engine.open_connection(1, 1, "", "")
        engine.open_session(1, 1, 3, "")
        rng = random.Random(size)
        texts = (
            [*MATCHING["levels"], *other_patterns("levels", size - MATCHES, rng)] if size else []
        )
        rng.shuffle(texts)
        for handle, text in enumerate(texts, 1):
            request = ConsumerRequest(handle, 1, "topic", text, 8192)
            engine.open_consumer(1, request, 1, 1, Effects())
        for handle, topic in enumerate(TOPICS[:100], 1):
            engine.open_producer(1, handle, 1, "topic", topic)
        self.pack = memoryview(pack_messages([(ROW.pack(0, 64, 0, 0, 4, 0, 0, 0), b"", b"x" * 64)]))
        self.sequence = 0

    def publish(self, count: int = 500) -> float:
        """Publications per second; each reaches exactly MATCHES subscribers."""
        engine = self.engine
        for connection in engine.state.connections.values():
            for consumer in connection.consumers.values():
                consumer.credit = 8192
        started = time.process_time()
        for i in range(count):
            self.sequence += 1
            fx = Effects()
            engine.send(1, 1, i % 100 + 1, self.sequence, 1, False, self.pack, 1, fx)  # noqa: FBT003
            assert len(fx.out) == MATCHES + 1
        return count / (time.process_time() - started)


def measure_engine(rounds: int) -> dict[int, float]:
    """The best rate by size."""
    engines = {size: WholeEngine(size) for size in SIZES}
    rates = dict.fromkeys(SIZES, 0.0)
    for _ in range(rounds):
        for size, engine in engines.items():
            rates[size] = max(rates[size], engine.publish())
    return rates


def measure(rounds: int) -> dict[str, dict[int, float]]:
    """The best rate by kind and size."""
    best: dict[str, dict[int, float]] = {kind: dict.fromkeys(SIZES, 0.0) for kind in OTHERS}
    for kind, rates in best.items():
        indexes = {size: build(kind, size) for size in SIZES}
        for _ in range(rounds):
            for size, index in indexes.items():
                rates[size] = max(rates[size], publish(index))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--plot", type=picture_file, help="Write a picture of the costs.")
    arguments = parser.parse_args()
    best = measure(arguments.rounds)
    best["whole engine"] = measure_engine(arguments.rounds)
    ratios = {
        kind: {n: r / rates[SIZES[0]] for n, r in rates.items()} for kind, rates in best.items()
    }
    if arguments.plot:
        costs = {k: [(n, 1 / ratio) for n, ratio in of.items()] for k, of in ratios.items()}
        title = "Cost of a publication of which 8 match, by subscriptions"
        arguments.plot.write_text(plot(costs, title), encoding="utf-8")
    if arguments.json:
        print(json.dumps(ratios))
        return
    for kind, rates in best.items():
        for size, rate in rates.items():
            ratio = ratios[kind][size]
            bar = "#" * round(40 * ratio)
            print(f"{kind:>12} {size:>7,} {rate:>10,.0f}/s {ratio:5.2f} {bar}")


if __name__ == "__main__":
    main()
