"""How much the tests that search try: in scripts/check a third of what scripts/test tries.

HMS_MODEL_EXAMPLES=5000 pytest tests/model      so many walks of each model
"""

import os

IS_QUICK = os.environ.get("HMS_TESTS") == "quick"


def tries(usual: int) -> int:
    """How many seeds, states or examples."""
    return usual // 3 if IS_QUICK else usual


def walks(usual: int) -> int:
    """How many examples of a model."""
    return int(os.environ.get("HMS_MODEL_EXAMPLES", tries(usual)))
