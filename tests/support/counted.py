"""Locks that count what the interpreter does under each of their holds. No garbage is looked for
then: what its callbacks and finalizers do is not the holder's."""

import gc
import sys


class Counted:
    """The engine's lock; the most calls in one hold of it."""

    def __init__(self):
        self.calls = self.most = 0

    def __enter__(self):
        self._thresholds = _collect_nothing()
        self.calls = 0
        sys.setprofile(self._count)

    def _count(self, _frame, event, _argument):
        if event in ("call", "c_call"):
            self.calls += 1

    def __exit__(self, *_):
        sys.setprofile(None)
        self.most = max(self.most, self.calls)
        gc.set_threshold(*self._thresholds)


class CountedSteps:
    """The same of single instructions, so that loops without a call count."""

    def __init__(self):
        self.steps = self.most = 0

    def __enter__(self):
        self._thresholds = _collect_nothing()
        self.steps, self._before = 0, sys.gettrace()
        sys.settrace(self._begin)

    def _begin(self, frame, _event, _argument):
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._count

    def _count(self, _frame, event, _argument):
        self.steps += event == "opcode"
        return self._count

    def __exit__(self, *_):
        sys.settrace(self._before)
        self.most = max(self.most, self.steps)
        gc.set_threshold(*self._thresholds)


def _collect_nothing():
    """From here on, also where the holder has garbage looked for again; the thresholds before."""
    before = gc.get_threshold()
    gc.set_threshold(0)
    return before
