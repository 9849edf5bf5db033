"""The garbage collector of a node does not walk what stays again and again."""

import gc

import pytest

from hms.boot import garbage


@pytest.fixture
def frozen(monkeypatch):
    """How often the collector was told to leave out what it has found."""
    calls = []
    monkeypatch.setattr(garbage.gc, "freeze", lambda: calls.append(1))
    return calls


@pytest.mark.parametrize(
    ("generation", "took_s", "times"), [(2, 0.6, 1), (2, 0.001, 0), (1, 0.6, 0), (0, 0.6, 0)]
)
def test_what_survives_a_long_full_collection_is_left_out_of_the_next(
    frozen, generation, took_s, times
):
    """With 60,000 consumers each took 0.6 s, under the engine's lock as likely as not."""
    readings = iter([100.0, 100.0 + took_s])
    told = garbage.FreezeSurvivors(lambda: next(readings))
    told("start", {"generation": generation})
    told("stop", {"generation": generation})

    assert len(frozen) == times


def test_the_collector_itself_calls_it(frozen):
    """Its callback has the arguments that the collector gives."""
    told = garbage.FreezeSurvivors(iter([0.0, 1.0]).__next__)
    is_on = gc.isenabled()
    gc.disable()
    gc.callbacks.append(told)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(told)
        if is_on:
            gc.enable()
    assert frozen == [1]
