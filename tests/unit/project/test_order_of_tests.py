"""The order in which CI runs its tests."""

import re
import subprocess
import sys

SHORT = "tests/unit/engine/flow/test_limits.py"
LONG = "tests/sim/test_followed_log.py"


def test_what_runs_long_does_not_begin_last(project_root):
    """A process that has no more to do would wait for a minute for one that began a long file. Told
    by the real thing, with the options of CI and one process."""
    ci = (project_root / ".ci" / "run").read_text()
    (options,) = re.findall(r"^scripts/test (.*) \|\|", ci, re.MULTILINE)
    as_named = ["-n", "1", "-p", "no:randomly", "-v", SHORT, LONG]
    command = [sys.executable, "-m", "pytest", *options.split(), *as_named]

    done = subprocess.run(command, capture_output=True, text=True, cwd=project_root, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    ran = re.findall(r"PASSED (\S+?)::", done.stdout)
    assert list(dict.fromkeys(ran)) == [LONG, SHORT]
