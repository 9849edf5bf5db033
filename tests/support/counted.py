"""A lock that counts the calls of the interpreter under each of its holds."""

import sys


class Counted:
    """The engine's lock; the most calls in one hold of it."""

    def __init__(self):
        self.calls = self.most = 0

    def __enter__(self):
        self.calls = 0
        sys.setprofile(self._count)

    def _count(self, _frame, event, _argument):
        if event in ("call", "c_call"):
            self.calls += 1

    def __exit__(self, *_):
        sys.setprofile(None)
        self.most = max(self.most, self.calls)
