"""Sessions: a Spark session that knows the format "hms"."""

import functools
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hms.errors.catalogue import SparkMissing
from hms.history.java import cache_dir, ensure_java, write_whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["borrowed_session", "register", "require_spark", "session"]

_PACKAGES = ("pyspark", "pyarrow")
LOCAL_MASTER = "local[2]"
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit for the program that it starts."""

_COMMON = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}
_LOCAL_JVM = "-XX:+UseSerialGC"
_SHORT_LIVED = "-XX:TieredStopAtLevel=1"
"""With this a command takes two thirds of the processor's time, and a long scan nearly twice."""
_ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Spark asks whether a value is there before it reads it, and reads within a batch that pyarrow
wrote; without a second look at each value a scan of three columns takes 0.6 of the time."""

_LOGGING = """status = error
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n
rootLogger.level = error
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
rootLogger.appenderRef.console.ref = console
"""


def require_spark(packages: Iterable[str] = _PACKAGES) -> None:
    """Raise SparkMissing unless pyspark and pyarrow, or these packages, are installed."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise SparkMissing(what="the history", package=package)


def session(
    app: str = "hms-history", master: str | None = None, *, is_long_lived: bool = False
) -> "SparkSession":
    """A Spark session with the format "hms"; the one that runs already, if there is one.

    master: Spark's master URL; None is what spark-submit was told, else local[2]. is_long_lived: a
    local one optimizes what it does often, which pays from some ten million rows on. Raises
    SparkMissing or JavaMissing. UTC throughout; on a local master nothing listens beyond loopback.
    """
    require_spark()
    spark = _running_session()
    if spark is None:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - takes a second to load

        ensure_java()
        master = master or _submitted_master() or LOCAL_MASTER
        _set_environment(is_local := master.startswith("local"))
        builder = SparkSession.builder.appName(app).master(master)
        for key, value in _settings(is_local, is_long_lived).items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
    register(spark)
    return spark


def _running_session() -> "SparkSession | None":
    """This thread's active session, else the one that the program made in another thread."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - takes a second to load

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    made = SparkSession._instantiatedSession  # noqa: SLF001 - nothing public says it
    return made if made is not None and made.sparkContext._jsc is not None else None  # noqa: SLF001


def is_spark_there() -> bool:
    """Whether spark-submit started this program, or it has a session already."""
    sql = sys.modules.get("pyspark.sql")
    return _SUBMITTED in os.environ or (
        sql is not None and sql.SparkSession.getActiveSession() is not None
    )


def _submitted_master() -> str | None:
    """The master that spark-submit was told, where it started this program."""
    if _SUBMITTED not in os.environ:
        return None
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - takes a second to load

    SparkContext._ensure_initialized()  # noqa: SLF001 - the settings are those of its JVM
    told: str | None = SparkConf().get("spark.master")
    return told


def _set_environment(is_local: bool) -> None:
    if is_local or "PYSPARK_PYTHON" not in os.environ:
        # Spark's workers would otherwise run whatever python3 is first on the PATH.
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def _settings(is_local: bool, is_long_lived: bool = False) -> dict[str, str]:
    """Only errors are logged: a command's own output must be readable."""
    logging = cache_dir() / "log4j2.properties"
    write_whole(logging, _LOGGING)
    options = f"{_ARROW} -Dlog4j2.configurationFile={logging.as_uri()}"
    if not is_local:
        return _COMMON | {"spark.driver.extraJavaOptions": options}
    jvm = _LOCAL_JVM if is_long_lived else f"{_LOCAL_JVM} {_SHORT_LIVED}"
    return (
        _COMMON
        | _LOCAL
        | {
            "spark.driver.extraJavaOptions": f"{jvm} {options}",
            # The workers import this very package, wherever the application found it.
            "spark.executorEnv.PYTHONPATH": str(Path(__file__).parents[2]),
        }
    )


def register(spark: "SparkSession") -> None:
    """Make `spark.read.format("hms")` known to a session, and let it see Spark's filters."""
    require_spark()
    from hms.history.source import PushingHmsDataSource  # noqa: PLC0415 - loads pyspark

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(PushingHmsDataSource)
    _let_writers_find_it()


def _let_writers_find_it() -> None:
    """Let `df.write.format("hms")` work in every thread.

    Spark looks for a data source of Python's in the session that is active in the thread that
    writes, and in a thread of the application's own none is (DATA_SOURCE_NOT_FOUND); reading takes
    the frame's session. So the writer makes its frame's session the thread's, for this format.
    """
    from pyspark.sql.readwriter import DataFrameWriter  # noqa: PLC0415 - loads pyspark
    from pyspark.sql.streaming.readwriter import DataStreamWriter  # noqa: PLC0415 - the same

    for writer in (DataFrameWriter, DataStreamWriter):
        if not hasattr(writer.format, "__wrapped__"):
            writer.format = _with_session(writer.format)


def _with_session(choose: "Callable[[Any, str], Any]") -> "Callable[[Any, str], Any]":
    @functools.wraps(choose)
    def run(self: Any, source: str) -> Any:
        if source.lower() == "hms":
            spark = self._df.sparkSession
            kind = getattr(spark, "_get_j_spark_session_class", None)
            if kind is not None:
                kind(spark._jvm).setActiveSession(spark._jsparkSession)  # noqa: SLF001
        return choose(self, source)

    return run


@contextmanager
def borrowed_session(
    spark: "SparkSession | None", app: str, master: str | None = None
) -> "Iterator[SparkSession]":
    """The given or running session, or one that is made for this block and stopped after it."""
    require_spark()
    running = spark or _running_session()
    if running is not None:
        register(running)
        yield running
        return
    made = session(app, master)
    try:
        yield made
    finally:
        made.stop()
