"""ActiveMQ with stomp.py: KahaDB, STOMP 1.2."""

import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from bench.peers.server import HOST, Peer, free_port, served
from boot.bench.load import Load, Sink
from boot.bench.systems import Needs, Running

__all__ = ["ACTIVEMQ", "StompDriver"]

_WAIT_S = 60.0
_BATCH = 100
"""Messages of one transaction: the only way to let it sync once for many."""
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


class _Listener:
    """Counts receipts, which come in order, and hands on messages."""

    def __init__(self, driver: "StompDriver") -> None:
        self._driver = driver
        self.receipts = 0
        self.fault = ""
        self.has_news = threading.Condition()

    def on_receipt(self, _: Any) -> None:
        """The broker has done what was asked."""
        with self.has_news:
            self.receipts += 1
            self.has_news.notify_all()

    def on_error(self, frame: Any) -> None:
        """The broker refuses."""
        with self.has_news:
            self.fault = f"{frame.headers} {frame.body}"
            self.has_news.notify_all()

    def on_message(self, frame: Any) -> None:
        """A message."""
        self._driver.came(frame)

    def __getattr__(self, name: str) -> Any:
        """All else that stomp.py tells is not needed."""
        if name.startswith("on_"):
            return lambda *_: None
        raise AttributeError(name)

    def wait(self, count: int) -> None:
        """Until so many receipts are here."""
        with self.has_news:
            if not self.has_news.wait_for(lambda: self.fault or self.receipts >= count, _WAIT_S):
                raise TimeoutError(f"{self.receipts} receipts of {count}")
            if self.fault:
                raise ConnectionError(self.fault)


class StompDriver:
    """See boot.bench.driver.Driver."""

    def __init__(self, address: str, options: dict[str, str]) -> None:  # noqa: ARG002
        self._port = int(address)
        self._asked = 0
        self._listener = _Listener(self)
        self._done = threading.Event()
        self._sink: Sink | None = None
        self._early: list[Any] = []
        self._connection: Any = None
        self._load: Load

    def _open(self, load: Load) -> None:
        import stomp  # noqa: PLC0415 - only where it is installed

        self._load = load
        self._name = load.destination.replace("queue:", "/queue/").replace("topic:", "/topic/")
        self._connection = stomp.StompConnection12([(HOST, self._port)], auto_decode=False)
        self._connection.set_listener("bench", self._listener)
        self._connection.connect(wait=True)
        self._connection.transport.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._persistent = "true" if load.is_durable else "false"

    def _receipt(self) -> dict[str, str]:
        self._asked += 1
        return {"receipt": str(self._asked)}

    def open_sender(self, load: Load) -> None:
        """Connect."""
        self._open(load)

    def _send(self, body: bytes, **more: Any) -> None:
        self._connection.send(self._name, body, persistent=self._persistent, **more)

    def send_each(self, bodies: Iterable[bytes], times_ns: list[int]) -> None:
        """One send after the other, each with its receipt."""
        clock = time.perf_counter_ns
        for body in bodies:
            begin = clock()
            self._send(body, headers=self._receipt())
            self._listener.wait(self._asked)
            times_ns.append(clock() - begin)

    def send_pipelined(self, bodies: Iterable[bytes]) -> None:
        """Durable ones in transactions, a window of which is on its way; others at full speed."""
        if not self._load.is_durable:
            for body in bodies:
                self._send(body)
            return
        waiting, behind = iter(bodies), max(1, self._load.window // _BATCH)
        while batch := list(islice(waiting, _BATCH)):
            transaction = self._connection.begin()
            for body in batch:
                self._send(body, transaction=transaction)
            self._connection.commit(transaction, headers=self._receipt())
            self._listener.wait(self._asked - behind + 1)
        self._listener.wait(self._asked)

    def send_timed(self, bodies: Iterable[bytes]) -> None:
        """Each when it is given."""
        for body in bodies:
            self._send(body, headers=self._receipt())
        self._listener.wait(self._asked)

    def open_receiver(self, load: Load) -> None:
        """Connect; subscribe at once to what is not stored."""
        self._open(load)
        if not load.is_durable:
            self._subscribe("auto")

    def _subscribe(self, ack: str) -> None:
        more = {"activemq.prefetchSize": str(self._load.prefetch)} | self._receipt()
        for number in range(self._load.fan):
            if number:
                more |= self._receipt()
            self._connection.subscribe(self._name, id=number, ack=ack, headers=more)
        self._listener.wait(self._asked)

    def came(self, frame: Any) -> None:
        """A message, on the thread of the library; some come before the clock runs."""
        sink = self._sink
        if sink is None:
            self._early.append(frame)
            return
        sink.take(frame.body)
        every = self._load.ack_every or 1
        if self._load.is_durable and (sink.count % every == 0 or sink.is_full):
            self._connection.ack(frame.headers["ack"])
        if sink.is_full:
            self._done.set()

    def receive(self, sink: Sink) -> None:
        """Until the sink is full."""
        self._sink = sink
        for frame in self._early:
            self.came(frame)
        if self._load.is_durable:
            self._subscribe("client" if self._load.ack_every else "client-individual")
        self._done.wait(self._load.timeout_s * 2)

    def close(self) -> None:
        """Disconnect."""
        self._connection.disconnect()


@dataclass(frozen=True, kw_only=True)
class ActiveMQ(Peer):
    """An ActiveMQ broker."""

    @contextmanager
    def run(self, folder: Path, needs: Needs) -> Iterator[Running]:  # noqa: ARG002
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
    driver="bench.peers.activemq:StompDriver",
    durability="KahaDB, journalDiskSyncStrategy always, receipts: synced before it is confirmed",
    is_synced=True,
    programs=("java", "activemq.jar"),
    modules=("stomp",),
    folders=("usr/share/activemq/bin",),
    workloads=frozenset({"W1", "W2", "W2s", "W3", "W3b", "W4", "W4r", "W5", "W6"}),
)
