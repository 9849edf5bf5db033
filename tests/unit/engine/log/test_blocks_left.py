"""Messages leave their blocks together as they would one by one."""

import random

import pytest

from hms.engine.log.live_index import LiveIndex, hold, left_by
from hms.engine.messages import StoredMessage


def stored(rng: random.Random) -> tuple[LiveIndex, list[StoredMessage]]:
    """Messages of some batches, large and small, held by queue 5, some by 6 too."""
    blocks, messages = LiveIndex(), []
    for _ in range(rng.randint(1, 6)):
        first = len(messages) + 1
        batch = [
            StoredMessage.of(one, one, 1, 0, 4, 0, 0, bytes(rng.randint(0, 90)), is_persistent=True)
            for one in range(first, first + rng.choice((1, 3, 40)))
        ]
        hold(batch, 5)
        for message in batch:
            if rng.random() < 0.3:
                hold([message], 6)
        log_position = blocks.add(batch, list(range(len(batch))))
        log_position.placed(rng.choice((1, 2)) << 32)
        messages += batch
    for message in messages:
        if rng.random() < 0.1:
            message.block = None  # as of one that no log knows
    return blocks, messages


def seen(blocks: LiveIndex, messages: list[StoredMessage]) -> list[object]:
    """All that an operator or the ring could tell of them."""
    found = [
        (
            m.block.has(m),
            m.block.live,
            sorted(m.holders) if isinstance(m.holders, set) else m.holders,
        )
        for m in messages
        if m.block is not None
    ]
    return [blocks.live_bytes, blocks.paged_bytes, blocks.paged_count, found]


@pytest.mark.parametrize("seed", range(40))
def test_together_is_the_same_as_one_by_one(seed):
    """A place leaves with some of its messages, in any order; then the other place; some twice."""
    (one_by_one, singles), (together, batch) = (stored(random.Random(seed)) for _ in range(2))
    rng = random.Random(seed + 1000)
    for _ in range(6):
        chosen = rng.sample(range(len(batch)), rng.randint(0, len(batch)))
        if rng.random() < 0.7:
            chosen.sort()
        number = rng.choice((5, 5, 6))
        for place in chosen:
            block = singles[place].block
            if block is not None:
                block.left(singles[place], number)
        left_by([batch[place] for place in chosen], number)
        assert seen(together, batch) == seen(one_by_one, singles)
