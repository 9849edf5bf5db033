"""What a client of any version does at a node of any version; prints what it saw as JSON.

As a program: PYTHON neighbour_client.py ADDRESS
"""

import json
import sys

import hms


def send_and_settle(conn):
    """Each way to settle, and what each header and property is at the other side."""
    queue, said = hms.Queue("orders"), []
    kinds = [hms.Message(b"bytes"), hms.Message.text("text"), hms.Message.map({"a": 1.5})]
    kinds += [hms.Message.stream([1, "two"]), hms.Message(b"z" * 100_000)]
    with conn.session(ack=hms.AckMode.CLIENT) as session:
        producer = session.producer(queue)
        for number, one in enumerate(kinds):
            one.type, one.properties = "T", {"n": number, "s": "é"}
            producer.send(one, priority=number)
        consumer = session.consumer(queue, selector="n >= 0")
        for _ in kinds:
            got = consumer.receive(60)
            told = dict(got.properties)
            said.append([repr(got.body)[:20], got.priority, got.type, told["n"], told["s"]])
        session.recover()
        again = [consumer.receive(60) for _ in kinds]
        said.append([got.redelivered for got in again])
        session.ack()
    return said


def transact(conn):
    """A rollback, a commit, and what waits behind them."""
    queue = hms.Queue("orders")
    with conn.session(transacted=True) as session:
        producer = session.producer(queue)
        producer.send(b"never")
        session.rollback()
        producer.send(b"once")
        producer.send(b"later", delay_s=0.05)
        session.commit()
        consumer = session.consumer(queue)
        said = sorted(bytes(consumer.receive(60).body).decode() for _ in range(2))
        session.commit()
    with conn.session() as session:
        said.append(len(list(session.browser(queue))))
    return said


def subscribe(conn):
    """A durable subscription and one that is not."""
    with conn.session() as session:
        topic = hms.Topic("news")
        kept = session.subscriber(topic, durable="kept")
        other = session.consumer(topic)
        session.producer(topic).send(b"news")
        said = [bytes(one.receive(60).body).decode() for one in (kept, other)]
        kept.close()
        session.unsubscribe(topic, "kept")
    return said


def main(address):
    """All of it, at one connection."""
    with hms.connect(address, client_id="neighbour", connect_timeout_s=60) as conn:
        said = {one.__name__: one(conn) for one in (send_and_settle, transact, subscribe)}
    print(json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1])
