"""Where the time of one send goes: the steps of a real node and client, as they follow."""

from bench.stages import CLIENT_STEPS, NODE_STEPS, measured, steps_of

ATTEMPTS = 5
"""On a busy machine a message may meet others on its way more often than not."""


def test_every_step_of_a_send_is_seen_in_its_order(tmp_path):
    """A step that is missing, or in the wrong place, would put its time on its neighbours."""
    way = [begins for _, _, begins, _ in (CLIENT_STEPS[0], *NODE_STEPS)]
    for _ in range(ATTEMPTS):
        steps, count = steps_of(measured(60, tmp_path))
        names = [step for step, _ in steps]
        if [step for step in dict.fromkeys(names) if step in way] == way:
            break
    times = [at for _, at in steps]
    assert count > 0
    assert names[0] == "send() begins"
    assert names[-1] == "send() returns"
    assert times == sorted(times)
    assert [step for step in dict.fromkeys(names) if step in way] == way


def test_only_messages_that_went_the_usual_way_are_told_of():
    """One that met a heartbeat has steps of its own."""
    begin, end = "send() begins", "send() returns"
    times = [(begin, 0.0), ("x", 1e-6), (end, 2e-6)]
    times += [(begin, 1.0), ("y", 1.1), (end, 1.5)]
    times += [(begin, 2.0), ("x", 2.0 + 3e-6), (end, 2.0 + 4e-6), ("late", 3.0)]

    steps, count = steps_of(times)

    assert count == 2
    assert [(name, round(at)) for name, at in steps] == [(begin, 0), ("x", 2), (end, 3)]
