"""ActiveMQ: KahaDB, STOMP 1.2; its client is in stomp_driver.py."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.peers.server import HOST, Peer, free_port, served
from hms.boot.bench.systems import Needs, Running

__all__ = ["ACTIVEMQ"]

_OPENED = ("java.lang", "java.util", "java.util.concurrent", "java.net", "java.security")
_XML = """<beans xmlns="http://www.springframework.org/schema/beans"
 xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation="
 http://www.springframework.org/schema/beans
 http://www.springframework.org/schema/beans/spring-beans-2.0.xsd
 http://activemq.apache.org/schema/core
 http://activemq.apache.org/schema/core/activemq-core.xsd">
<broker xmlns="http://activemq.apache.org/schema/core" brokerName="bench" useJmx="false"
 schedulerSupport="false" dataDirectory="{folder}"><persistenceAdapter>
<kahaDB directory="{folder}/store" journalDiskSyncStrategy="always"/></persistenceAdapter>
<transportConnectors><transportConnector name="stomp"
 uri="stomp://{host}:{port}?transport.tcpNoDelay=true"/></transportConnectors></broker></beans>
"""
_LOG = """log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.SimpleLayout
"""


@dataclass(frozen=True, kw_only=True)
class ActiveMQ(Peer):
    """An ActiveMQ broker."""

    @contextmanager
    def boot(self, folder: Path, needs: Needs) -> Iterator[Running]:  # noqa: ARG002
        """Start it with an empty store."""
        port = free_port()
        xml = folder / "broker.xml"
        xml.write_text(_XML.format(folder=folder, host=HOST, port=port))
        (folder / "log4j.properties").write_text(_LOG)
        jar = Path(str(self.program("activemq.jar")))
        command = ["java", "-Xms512m", "-Xmx1g"]
        command += [word for p in _OPENED for word in ("--add-opens", f"java.base/{p}=ALL-UNNAMED")]
        command += [f"-Dactivemq.home={jar.parent.parent}", f"-Dactivemq.base={folder}"]
        command += [f"-Dactivemq.classpath={folder}", f"-Djava.io.tmpdir={folder}"]
        command += ["-jar", str(jar), "start", f"xbean:file:{xml}"]
        with served(command, folder, port) as process:
            yield Running(str(port), (process.pid,))


ACTIVEMQ = ActiveMQ(
    name="activemq",
    driver="bench.peers.stomp_driver:StompDriver",
    durability="KahaDB, journalDiskSyncStrategy always, receipts: synced before it is confirmed",
    is_synced=True,
    programs=("java", "activemq.jar"),
    modules=("stomp",),
    folders=("usr/share/activemq/bin",),
    workloads=frozenset({"W1", "W2", "W2s", "W3", "W3b", "W4", "W4r", "W5", "W6", "W7", "W8"}),
)
