"""An archive at any place that Spark's Hadoop reaches, by a URL such as hdfs://… or s3a://…"""

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hms.errors.catalogue import ArchiveError
from hms.history.archive_place import ArchivePlace, FileTakenError, is_url, local_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["HadoopPlace", "place_of"]


def place_of(spark: "SparkSession", where: str) -> ArchivePlace:
    """The place of an archive, whatever its path or URL."""
    return HadoopPlace(spark, where) if is_url(where) else local_place(where)


class HadoopPlace:
    """A folder of a Hadoop file system, used through Spark's JVM on the driver."""

    def __init__(self, spark: "SparkSession", where: str) -> None:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # noqa: PLC0415 - pyspark has it

        self.where = where
        self._jvm: Any = spark._jvm  # noqa: SLF001 - Spark has no other way to a file system
        self._failure = Py4JError
        configuration = spark._jsc.hadoopConfiguration()  # noqa: SLF001
        try:
            root = self._jvm.org.apache.hadoop.fs.Path(where)
            self._files = root.getFileSystem(configuration)
            context = self._jvm.org.apache.hadoop.fs.FileContext
            self._context = context.getFileContext(root.toUri(), configuration)
        except Py4JError as fault:
            raise ArchiveError(where=where, detail=_said(fault)) from fault
        self._root = self._files.makeQualified(root)

    def url(self, name: str) -> str:
        """What Spark calls a file or folder."""
        return str(self._path(name).toString())

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none when it is not there."""
        path = self._path(folder)
        if not self._try(self._files.exists, path):
            return []
        return [str(one.getPath().getName()) for one in self._try(self._files.listStatus, path)]

    def files(self, folder: str) -> dict[str, int]:
        """All files below a folder, by name, with their sizes."""
        path, found = self._path(folder), {}
        if not self._try(self._files.exists, path):
            return {}
        for one in self._try(self._files.listStatus, path):
            name = f"{folder}/{one.getPath().getName()}"
            found.update(self.files(name) if one.isDirectory() else {name: int(one.getLen())})
        return found

    def read(self, name: str) -> bytes:
        """A whole file. FileNotFoundError."""
        path = self._path(name)
        if not self._try(self._files.exists, path):
            raise FileNotFoundError(name)
        stream = self._try(self._files.open, path)
        try:
            return bytes(self._try(self._jvm.org.apache.commons.io.IOUtils.toByteArray, stream))
        finally:
            stream.close()

    def create(self, name: str, data: bytes) -> None:
        """A file that is there as a whole or not at all. FileTakenError."""
        target = self._path(name)
        draft = self._path(f"{name.rpartition('/')[0]}/_{uuid.uuid4().hex}.tmp")
        stream = self._try(self._files.create, draft)
        self._try(stream.write, data)
        self._try(stream.close)
        if self._try(self._files.exists, target):
            self._files.delete(draft, False)  # noqa: FBT003 - Java has no names
            raise FileTakenError(name)
        try:
            self._rename(draft, target)
        except ArchiveError:
            if self._try(self._files.exists, target):
                raise FileTakenError(name) from None
            raise

    def move(self, source: str, target: str) -> None:
        """Give a file another name, in a folder that is made if need be."""
        path = self._path(target)
        self._try(self._files.mkdirs, path.getParent())
        self._rename(self._path(source), path)

    def sync(self, names: Sequence[str]) -> None:
        """A Hadoop file system keeps what was closed."""

    def remove(self, name: str) -> None:
        """Remove a file or a whole folder; nothing when it is not there."""
        self._try(self._files.delete, self._path(name), True)  # noqa: FBT003 - as above

    def _rename(self, source: Any, target: Any) -> None:
        """Unlike the file system's own, this one never replaces what is there."""
        kind = getattr(self._jvm.org.apache.hadoop.fs, "Options$Rename")
        options = self._array(kind)
        self._try(self._context.rename, source, target, options)

    def _array(self, kind: Any) -> Any:
        from pyspark import SparkContext  # noqa: PLC0415 - loads pyspark

        gateway = SparkContext._gateway  # noqa: SLF001 - makes Java's arrays
        assert gateway is not None
        return gateway.new_array(kind, 0)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)

    def _try(self, method: Any, *arguments: Any) -> Any:
        try:
            return method(*arguments)
        except self._failure as fault:
            raise ArchiveError(where=self.where, detail=_said(fault)) from fault


def _said(fault: Exception) -> str:
    """What Java says, in one line."""
    java = getattr(fault, "java_exception", None)
    return str(java.toString() if java is not None else fault).strip().partition("\n")[0][:300]
