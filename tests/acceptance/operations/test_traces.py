"""Traces: one picture over processes, a service, a transaction and a node that is killed."""

import asyncio
import json
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span

import hms
import hms.aio
import hms.otel
from bench import traces
from hms.boot.cli import main
from hms.client.core import tracing
from hms.testing import node as booted
from tests.support.postgres import postgres_server
from tests.support.waiting import wait_until
from tpmon.xa.resource_opening import close_resources

HERE = Path(__file__).parent
CONFIG = {"hms": {"queue": {"orders": {}, "notes": {}, "traced": {}}, "topic": {"news": {}}}}
WAIT_S = 60
LIFE = ["sent", "delivered", "acknowledged"]


@pytest.fixture
def spans():
    """What this process traces, by name; a tracer of the application, too."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    hms.otel.instrument(provider)
    yield exporter, provider.get_tracer("application")
    hms.otel.uninstrument()


def _own(exporter):
    return [json.loads(span.to_json()) for span in exporter.get_finished_spans()]


def _roots(spans):
    """How many pictures they are: joined are spans by parents and links."""
    of = {span["context"]["span_id"]: span["context"]["span_id"] for span in spans}

    def root(one):
        while of[one] != one:
            one = of[one]
        return one

    for span in spans:
        own = span["context"]["span_id"]
        others = [span["parent_id"], *(link["context"]["span_id"] for link in span["links"])]
        for other in filter(None, others):
            assert other in of, f"{span['name']} names a span that nobody has"
            of[root(own)] = root(other)
    return len({root(one) for one in of})


def test_two_processes_a_transaction_and_a_kill_are_one_picture(spans, tmp_path, monkeypatch):
    """Producer, service, database, queue and consumer, though the node died in between."""
    exporter, tracer = spans
    file = tmp_path / "spans"
    monkeypatch.setenv("OTEL_FILE", str(file))
    with postgres_server({"max_prepared_transactions": "10"}) as postgres:
        postgres.ask("CREATE TABLE entry (id text PRIMARY KEY)")
        server = {"module": "traced_services", "MIN": 1, "python_path": [str(HERE)]}
        config = CONFIG | {
            "server": {"noting": server},
            "rm": {"pg": {"kind": "postgresql", "open": postgres.url}},
        }
        with booted(store=tmp_path / "store", config=config) as node:
            with (
                hms.connect(node.address) as conn,
                tracer.start_as_current_span("shop"),
                conn.transaction(timeout_s=WAIT_S),
            ):
                hms.rm("pg").execute("INSERT INTO entry VALUES ('one')")
                conn.call("NOTE", "noted", timeout_s=WAIT_S)
                hms.rm("hms").producer("orders").send("coffee")
            close_resources()
            node.kill()
        with booted(store=tmp_path / "store", config=CONFIG) as node:
            seen = []
            with hms.connect(node.address) as conn, conn.session() as session:
                session.consumer("orders").listen(lambda message: seen.append(message.body))
                assert session.consumer("notes").receive(WAIT_S).body == "noted"
                wait_until(lambda: seen, WAIT_S)
        assert postgres.ask("SELECT count(*) FROM entry")[0][0] == 1
    own = _own(exporter)
    served = [json.loads(line) for line in file.read_text().splitlines()]
    assert {span["name"] for span in own} == {
        *("shop", "transaction", "call NOTE", "send orders", "process orders", "receive notes"),
    }
    assert {span["name"] for span in served} == {"NOTE", "send notes"}
    assert _roots(own + served) == 1
    (ended,) = [span for span in own if span["name"] == "transaction"]
    told = [(event["name"], event["attributes"]) for event in ended["events"]]
    steps = [(name, said.get("hms.resource", "")) for name, said in told]
    assert steps[0] == ("begin", "")
    assert told[0][1]["hms.transaction"]
    started = {said["hms.resource"] for name, said in told if name == "start"}
    assert started >= {"pg", "hms"}
    assert steps.index(("start", "pg")) < steps.index(("prepare", "pg"))
    assert steps.index(("prepare", "pg")) < steps.index(("decision", ""))
    assert steps.index(("decision", "")) < steps.index(("commit", "pg"))
    of_pg = [said for name, said in told if said.get("hms.resource") == "pg"]
    assert len({said["hms.branch"] for said in of_pg}) == 1
    assert [said.get("hms.outcome") for said in of_pg] == [None, "XA_OK", "committed"]
    assert ("commit", "hms") in steps


def test_the_context_stays_with_a_message_and_a_failure_is_told(spans, conn):
    """Also in the dead letter queue, and when it is sent on by somebody else."""
    exporter, _ = spans
    with conn.session(ack=hms.AckMode.CLIENT) as session, conn.session() as other:
        session.producer("orders").send_many(["one", hms.Message(b"two", {"n": 1})])
        consumer = session.consumer("orders")
        received = consumer.receive_many(1, WAIT_S)
        received[0].ack()

        def refuse(_message):
            raise hms.Reject("broken")

        consumer.listen(refuse)
        letter = other.consumer("HMS.DLQ").receive(WAIT_S)
    spans = {span.name: span for span in exporter.get_finished_spans()}
    context = spans["send orders"].get_span_context()
    carried = f"00-{context.trace_id:032x}-{context.span_id:016x}-"
    assert letter.properties["traceparent"].startswith(carried)
    assert letter.properties["n"] == 1
    failed = spans["process orders"]
    assert [link.context.span_id for link in failed.links] == [context.span_id]
    assert (failed.status.is_ok, failed.events[0].name) == (False, "exception")
    assert spans["receive orders"].attributes["messaging.system"] == "hms"
    assert spans["settle orders"].attributes["messaging.message.id"] == received[0].message_id


def test_the_history_has_the_life_of_any_message(spans, conn, running, tmp_path):
    """In the order of a tracer, at its times, and also of messages that nobody traced."""
    exporter, _ = spans
    with conn.session() as session:
        traced = session.producer("orders").send("traced")
        (sent,) = exporter.get_finished_spans()
        hms.otel.uninstrument()
        untraced = session.producer("orders").send("untraced")
        consumer = session.consumer("orders", prefetch=1)
        assert [consumer.receive(WAIT_S).body for _ in range(2)] == ["traced", "untraced"]

    def trace(*words):
        done = CliRunner().invoke(
            main, ["history", "trace", *words, "--config", str(running.config_file), "--json"]
        )
        return done.exit_code, json.loads(done.stdout)

    code, steps = trace(untraced.message_id)
    assert (code, [step["event"] for step in steps]) == (0, LIFE)
    file = tmp_path / "spans.json"
    code, steps = trace("--traceparent", f"{sent.context.trace_id:032x}", "--otlp", str(file))
    assert [(step["message_id"], step["event"]) for step in steps] == [
        (traced.message_id, event) for event in LIFE
    ]
    begun_ms, ended_ms = (at // 1_000_000 for at in (sent.start_time, sent.end_time))
    assert begun_ms - 1 <= steps[0]["time_ms"] <= ended_ms + 1  # the node's clock is its own
    (resource,) = json.loads(file.read_text())["resourceSpans"]
    (scope,) = resource["scopeSpans"]
    whole, *parts = scope["spans"]
    assert whole["parentSpanId"] == f"{sent.context.span_id:016x}"
    assert {span["traceId"] for span in scope["spans"]} == {f"{sent.context.trace_id:032x}"}
    assert [span["name"] for span in parts] == ["sent queue:orders", "delivered queue:orders"]
    assert trace("0123456789ab") == (1, [])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give an ID"),
        (["12"], "no message id"),
        (["01234567890g"], "no message id"),
        (["--traceparent", "00-12-34"], "no trace id"),
    ],
)
def test_what_is_no_id_is_refused(words, said, tmp_path):
    """Before anything is read."""
    done = CliRunner().invoke(main, ["history", "trace", *words, "--path", str(tmp_path)])
    assert done.exit_code != 0
    assert said in done.output


def test_nothing_is_added_when_nothing_traces(conn):
    """A tracer that is not there costs no byte."""
    with conn.session() as session:
        session.producer("orders").send("coffee")
        assert dict(session.consumer("orders").receive(WAIT_S).properties) == {}


def test_what_begins_unsampled_adds_nothing_and_what_others_decided_goes_on(conn):
    """99 of 100 messages of a sampled producer were packed with a context that nobody had."""
    provider = TracerProvider(sampler=ParentBased(ALWAYS_OFF))
    hms.otel.instrument(provider)
    try:
        with conn.session() as session:
            producer, consumer = session.producer("orders"), session.consumer("orders")
            producer.send("one")
            producer.send_many(["two", hms.Message(b"three", {"n": 1})])
            received = consumer.receive_many(3, WAIT_S)
            assert [dict(one.properties) for one in received] == [{}, {}, {"n": 1}]
            decided = SpanContext(0x1234, 0x56, is_remote=True, trace_flags=TraceFlags(0))
            with use_span(NonRecordingSpan(decided)):
                producer.send("four")
            carried = consumer.receive(WAIT_S).properties["traceparent"]
            assert re.fullmatch(f"00-{0x1234:032x}-[0-9a-f]{{16}}-00", carried)
    finally:
        hms.otel.uninstrument()


def test_a_connection_may_ask_for_traces(running, monkeypatch):
    """As the application would by instrument(), with the providers of the process; who traces
    already goes on as before."""
    hms.otel.uninstrument()
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", lambda: provider)

    def names():
        return [span.name for span in exporter.get_finished_spans()]

    async def send():
        async with hms.aio.connect(running.address, trace=True) as conn, conn.session() as session:
            await session.producer("orders").send("coffee")

    try:
        with hms.connect(running.address, trace=True) as conn, conn.session() as session:
            installed = tracing.tracer
            session.producer("orders").send("coffee")
            assert names() == ["send orders"]
            asyncio.run(send())
            assert tracing.tracer is installed
            assert names() == ["send orders"] * 2
            consumer = session.consumer("orders")
            assert consumer.receive(WAIT_S)
            assert consumer.receive(WAIT_S)
    finally:
        hms.otel.uninstrument()


def test_traces_without_their_extra_are_refused_with_its_name(monkeypatch):
    """Before anything is connected; nothing is traced then."""
    hms.otel.uninstrument()
    monkeypatch.delitem(sys.modules, "hms.otel")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(hms.errors.InvalidArgument, match=r"opentelemetry: pip install .*otel"):
        hms.connect("tcp://127.0.0.1:9", trace=True)
    assert tracing.tracer is None
    with pytest.raises(hms.errors.InvalidArgument, match="trace"):
        hms.connect("tcp://127.0.0.1:9", trace="yes")


def test_what_a_trace_costs_a_client_is_few_calls_where_nothing_is_kept(running, monkeypatch):
    """Messages that are sent or taken at once have one span; each was told to it, by 11 calls."""
    hms.otel.uninstrument()
    off, without = (traces.calls(running.address, name) for name in ("off", "without"))
    monkeypatch.setitem(traces.SHARES, "sampled", 0.0)  # else one of a hundred is kept
    sampled = traces.calls(running.address, "sampled")
    assert without["send_many"] < off["send_many"] + 3
    assert without["receive_many"] < off["receive_many"] + 2
    assert without["send_async"] < off["send_async"] + 45
    assert sampled["send_many"] < off["send_many"] + 3
    assert sampled["receive_many"] < off["receive_many"] + 2


@pytest.fixture
def measured():
    """What this process measures: the sum, or count, of a metric by operation and destination."""
    reader = InMemoryMetricReader()
    hms.otel.instrument(meter_provider=MeterProvider([reader]))

    def read():
        found = {}
        for resource in getattr(reader.get_metrics_data(), "resource_metrics", ()):
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        about = dict(point.attributes)
                        assert about.pop("messaging.system") == "hms"
                        name = metric.name.removeprefix("messaging.")
                        key = (
                            name,
                            about["messaging.operation.name"],
                            about.get("messaging.destination.name", "temporary"),
                            *((about["error.type"],) if "error.type" in about else ()),
                        )
                        found[key] = getattr(point, "count", None) or point.value
        return found

    yield read
    hms.otel.uninstrument()


def test_a_client_measures_what_it_sends_and_consumes(measured, node):
    """One by one, in a batch, in a transaction, by a listener that fails once, and what is refused;
    a temporary queue has no series of its own, as they would be without end."""
    failures, taken = [ValueError("once")], []

    def listener(message):
        if failures:
            raise failures.pop()
        taken.append(message.body)

    with (
        hms.connect(node.address) as conn,
        conn.session(ack=hms.AckMode.CLIENT) as session,
        conn.session() as other,
    ):
        producer = session.producer("orders")
        producer.send("one")
        producer.send_many(["two", "three", "four"])
        producer.send_async("five").result(WAIT_S)
        with pytest.raises(hms.errors.PropertyNameError):
            producer.send("six", {"": 1})
        consumer = session.consumer("orders")
        first = consumer.receive(WAIT_S)
        found = [first]
        while len(found) < 5:
            found += consumer.receive_many(5 - len(found), WAIT_S)
        assert consumer.receive(0) is None
        first.ack()
        session.ack()
        with conn.session(transacted=True) as work:
            work.producer("notes").send("six")
            work.commit()
        other.consumer("notes").listen(listener)
        wait_until(lambda: taken, WAIT_S)
        own = other.temporary_queue()
        other.producer(own).send("seven")
    seen = measured()
    sent, consumed = "client.sent.messages", "client.consumed.messages"
    assert seen[sent, "send", "orders"] == 5
    assert seen[sent, "send", "orders", "PropertyNameError"] == 1
    assert seen[sent, "send", "notes"] == seen[sent, "send", "temporary"] == 1
    assert seen[consumed, "receive", "orders"] == 5
    assert seen[consumed, "process", "notes"] == 1
    assert seen[consumed, "process", "notes", "ValueError"] == 1
    took = "client.operation.duration"
    assert seen[took, "send", "orders"] == 3
    assert seen[took, "settle", "orders"] == 2
    assert 2 <= seen[took, "receive", "orders"] <= 5
    assert seen["process.duration", "process", "notes"] == 1
    assert seen["process.duration", "process", "notes", "ValueError"] == 1


def test_a_client_of_asyncio_measures_the_same(measured, node):
    """Its receive in a batch and its listener too."""

    async def work():
        async with hms.aio.connect(node.address) as conn:
            session = await conn.session()
            producer = await session.producer("orders")
            await producer.send("one")
            await producer.send_many(["two", "three"])
            await producer.send_async("four")
            consumer, count = await session.consumer("orders"), 0
            while count < 4:
                count += len(await consumer.receive_many(4, WAIT_S))
            await consumer.close()
            heard = asyncio.get_running_loop().create_future()

            async def listener(message):
                await asyncio.sleep(0)
                heard.set_result(message.body)

            await producer.send("five")
            other = await session.consumer("orders")
            await other.listen(listener)
            assert await asyncio.wait_for(heard, WAIT_S) == "five"

    asyncio.run(work())
    seen = measured()
    assert seen["client.sent.messages", "send", "orders"] == 5
    assert seen["client.consumed.messages", "receive", "orders"] == 4
    assert seen["client.consumed.messages", "process", "orders"] == 1
    assert seen["process.duration", "process", "orders"] == 1


def test_a_batch_is_one_span_with_links_and_says_where_it_is_from(spans, running):
    """Not one for the first message and one for the rest; a durable subscription has its name."""
    exporter, _ = spans
    with (
        hms.connect(running.address, client_id="desk") as conn,
        conn.session(transacted=True) as session,
    ):
        subscriber = session.subscriber("topic:news", durable="desk")
        senders = session.producer("topic:news")
        for number in range(4):
            senders.send(str(number))
        session.commit()
        batches = []
        while sum(batches) < 4:
            batches.append(len(subscriber.receive_many(4 - sum(batches), WAIT_S)))
        session.commit()
    every = exporter.get_finished_spans()
    sent = [span.get_span_context().span_id for span in every if span.name == "send news"]
    received = [span for span in every if span.name == "receive news"]
    of_spans = [span.attributes.get("messaging.batch.message_count", 1) for span in received]
    assert of_spans == batches
    assert [link.context.span_id for span in received for link in span.links] == sent
    for span in received:
        assert span.attributes["messaging.destination.subscription.name"] == "desk"
        assert span.attributes["hms.transaction"] is True


def test_a_span_of_a_send_that_is_refused_ends(spans, conn):
    """It said nothing of those that never went on their way, and left them without an end."""
    exporter, _ = spans
    with conn.session() as session:
        producer = session.producer("orders")
        with pytest.raises(hms.errors.PropertyNameError):
            producer.send("one", {"": 1})
        producer.close()
        with pytest.raises(hms.errors.ConnectionClosed):
            producer.send("two")
    ends = [span.attributes["error.type"] for span in exporter.get_finished_spans()]
    assert ends == ["PropertyNameError", "ConnectionClosed"]


def test_nothing_of_it_is_called_when_nothing_traces(emptied):
    """A send, a receive and an acknowledgement pass it by with a look at one name."""
    called = set()

    def note(frame, event, _argument):
        if event == "call":
            called.add(Path(frame.f_code.co_filename).name)

    with (
        hms.connect(emptied.address) as conn,
        conn.session(ack=hms.AckMode.CLIENT) as session,
    ):
        producer, consumer = session.producer("orders"), session.consumer("orders")
        sys.setprofile(note)
        try:
            producer.send("one")
            producer.send_many(["two", "three"])
            consumer.receive(WAIT_S).ack()
            consumer.receive_many(2, WAIT_S)
            session.ack()
        finally:
            sys.setprofile(None)
    assert "producer_steps.py" in called
    assert not called & {"tracing.py", "message_tracing.py", "otel.py"}
