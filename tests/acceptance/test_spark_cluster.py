"""The jobs over the history on a Spark cluster of two workers, unchanged (F-Q5)."""

import json

import pytest
from spark_cluster_rig import cluster, submit

import hms
import hms.testing
from hms.history.package import write_package

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

CONFIG = {"hms": {"queue": {"orders": {}, "again": {}}}}
COUNT = 6000
JOB = """
import json
import sys
from dataclasses import asdict

from hms.history import make_report, replay, session


def where(_):
    import hms.history

    return hms.history.__file__


store, address = sys.argv[1:]
spark = session("cluster test")
report = replay(
    spark, store, address=address, destination="orders", into="again", selector="n < 5000"
)
audit = make_report(spark, store, "audit", address=address)
files = spark.sparkContext.parallelize(range(4), 4).map(where).distinct().collect()
told = {"replay": asdict(report), "audit": audit.as_dicts(), "files": files}
print("TOLD " + json.dumps({**told, "master": spark.sparkContext.master}))
"""


@pytest.fixture(scope="module")
def node():
    """A node with a past of several segments."""
    with hms.testing.node(config=CONFIG) as running:
        with hms.connect(running.address) as connection, connection.session() as own:
            messages = [hms.Message(b"%d" % i + bytes(2000), {"n": i}) for i in range(COUNT)]
            own.producer(hms.Queue("orders")).send_many(messages)
        yield running


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """What hms history package writes."""
    return write_package(tmp_path_factory.mktemp("package"))


def test_replay_and_audit_run_on_a_cluster_through_spark_submit(package, node, tmp_path):
    """The same functions as on one machine; only the master is another, and the workers take our
    code from the package, not from what may be installed there."""
    packed, _ = package
    job = tmp_path / "job.py"
    job.write_text(JOB)
    with cluster(tmp_path) as url:
        ended = submit(url, packed, job, str(node.store), node.address)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    (line,) = [line for line in ended.stdout.splitlines() if line.startswith("TOLD ")]
    told = json.loads(line.removeprefix("TOLD "))
    assert told["master"] == url
    assert all(f"/{packed.name}/hms/history" in file for file in told["files"])
    assert told["replay"]["sent"] == 5000
    rows = {row["place"]: row for row in told["audit"]}
    assert rows["queue:again"]["came"] == 5000 == rows["queue:again"]["node_has"]
    with hms.connect(node.address) as connection, connection.session() as own:
        arrived = [m.properties["n"] for m in own.browser(hms.Queue("again"), oldest_first=True)]
    assert arrived == list(range(5000))


def test_the_job_file_ends_with_the_error_and_a_code(package, tmp_path):
    """A scheduler looks at the code, an operator at the text; spark-submit puts both outputs of
    Python into one."""
    asked = ("--destination", "a", "--into", "b", "--connect", "tcp://127.0.0.1:1")
    ended = submit("local[1]", *package, "replay", "--path", str(tmp_path / "none"), *asked)

    assert ended.returncode == 1
    assert "hms: HMS-5" in ended.stdout
