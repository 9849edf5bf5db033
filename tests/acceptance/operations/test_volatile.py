"""Where messages rest that are not persistent (SE-09)."""

import contextlib
import secrets

import hms
import hms.testing

CONFIG = {"hms": {"queue": {"orders": {"redelivery_limit": 1}}}}


def files_with(folder, marker):
    """The files below a folder that have these bytes."""
    while True:
        files = [path for path in folder.rglob("*") if path.is_file()]
        with contextlib.suppress(FileNotFoundError):  # it has another name by now
            return [path.name for path in files if marker in path.read_bytes()]


def test_what_is_not_persistent_is_in_no_file_of_the_node(tmp_path):
    """Neither while it waits, nor as a dead letter, nor when the node has stopped."""
    passing, kept = (secrets.token_hex(20).encode() for _ in range(2))
    with hms.testing.node(store=tmp_path / "store", config=CONFIG) as node:
        with hms.connect(node.address) as connection:
            session = connection.session(ack=hms.AckMode.CLIENT)
            producer = session.producer("orders")
            for _ in range(3):
                producer.send(passing, {"Whose": passing.decode()}, persistent=False)
            producer.send(kept)
            consumer = session.consumer("orders", prefetch=1)
            assert bytes(consumer.receive(60).body) == passing
            session.recover()
            assert files_with(tmp_path, kept) != []
            assert files_with(tmp_path, passing) == []
        node.stop()
    assert files_with(tmp_path, kept) != []
    assert files_with(tmp_path, passing) == []
