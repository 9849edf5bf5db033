"""How Spark sessions are set up, without starting one."""

import os
import sys

import pytest

from hms.errors.catalogue import SparkMissing
from hms.history import spark


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """Files that can be made again go here."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "the cache"))
    return tmp_path / "the cache"


def test_a_missing_package_is_named_with_the_cure(monkeypatch):
    """An ImportError from inside would not tell which extra to install."""
    monkeypatch.setattr(spark.importlib.util, "find_spec", lambda name: name == "pyspark" or None)
    with pytest.raises(SparkMissing, match="pyarrow") as caught:
        spark.require_spark()

    assert "[spark]" in caught.value.cure


def test_a_local_session_listens_on_loopback_only():
    """A laptop in a foreign network runs it too."""
    settings = spark._settings(is_local=True)

    assert settings["spark.driver.bindAddress"] == settings["spark.driver.host"] == "127.0.0.1"
    assert settings["spark.ui.enabled"] == "false"
    assert settings["spark.sql.session.timeZone"] == "UTC"


def test_a_cluster_keeps_its_own_addresses_and_python():
    """What is right for one machine is wrong for many."""
    settings = spark._settings(is_local=False)

    assert "spark.driver.host" not in settings
    assert "spark.executorEnv.PYTHONPATH" not in settings
    assert "Serial" not in settings["spark.driver.extraJavaOptions"]


def test_only_a_session_that_lives_long_optimizes_what_it_does_often():
    """Its JVM takes half as much again to start, which a command never gets back."""
    name = "spark.driver.extraJavaOptions"
    short, long = (spark._settings(is_local=True, is_long_lived=one)[name] for one in (False, True))

    assert "-XX:TieredStopAtLevel=1" in short.split()
    assert set(short.split()) - set(long.split()) == {"-XX:TieredStopAtLevel=1"}


@pytest.mark.parametrize("is_local", [True, False])
def test_values_of_arrow_are_not_looked_at_twice(is_local):
    """A scan of three columns takes 0.6 of the time without."""
    options = spark._settings(is_local)["spark.driver.extraJavaOptions"]

    assert "-Darrow.enable_unsafe_memory_access=true" in options.split()


def test_the_logging_file_is_found_in_a_folder_with_a_space(cache):
    """Java options are split at spaces."""
    options = spark._settings(is_local=True)["spark.driver.extraJavaOptions"]

    assert f"configurationFile={(cache / 'hms' / 'log4j2.properties').as_uri()}" in options
    assert "the%20cache" in options


def test_local_workers_run_this_python(monkeypatch):
    """The first python3 on the PATH may lack every package."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, "other")
    spark._set_environment(is_local=True)

    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert os.environ["SPARK_LOCAL_IP"] == "other"


def test_a_python_that_the_user_chose_for_a_cluster_stays(monkeypatch):
    """The path of this Python may not exist on the nodes."""
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    spark._set_environment(is_local=False)

    assert os.environ["PYSPARK_PYTHON"] == "/opt/python"
