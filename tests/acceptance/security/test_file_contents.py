"""SE-29: what a file message holds is the business of its sender and its receiver alone.

Its bytes arrive unchanged and their SHA-256 is told to both, and to an operator. Neither what they
are nor what a name or property says of them matters: nothing looks for malware or for MIME types.
"""

import hashlib
import io
import random
import zipfile

import pytest

import hms
import hms.testing
from hms.wire.packed_messages import decode_head

WAIT_S = 60
TEST_VIRUS = b"X5O!P%@AP[4\\PZX54(P^)7CC)7}$" + b"EICAR-STANDARD-ANTIVIRUS-TEST-FILE!$H+H*"
"""Every scanner of malware knows it."""


def _bomb():
    """A small archive of 8 MiB of zeros."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(8 << 20))
    return packed.getvalue()


CONTENTS = {
    "invoice.pdf": TEST_VIRUS,
    "archive.zip": _bomb(),
    "picture.png": b"<html><script>alert(1)</script></html>",
    "page.html": b"\x89PNG\r\n\x1a\n" + bytes(100),
    "lines.txt": b"\xef\xbb\xbfone\r\ntwo\rthree\n\x1a",
    "text.txt": b"\xff\xfe\x00\xd8" + "ä".encode("latin-1") + b"\x00",
    "run.sh": b"#!/bin/sh\nrm -rf /\n",
    "nothing": b"",
    "blocks.bin": random.Random(29).randbytes(3 * 256 * 1024 + 1),
}


@pytest.fixture(scope="module")
def node():
    with hms.testing.node(config={"hms": {"queue": {"files": {}}}}) as running:
        yield running


@pytest.mark.parametrize("name", CONTENTS)
def test_the_bytes_of_a_file_arrive_as_they_were_sent_whatever_they_are(node, tmp_path, name):
    """A guess about them would change, hold up or refuse what somebody needs."""
    content = CONTENTS[name]
    digest, source, target = hashlib.sha256(content).hexdigest(), tmp_path / name, io.BytesIO()
    source.write_bytes(content)
    claims = {"MimeType": "image/png", "Clean": True, "Sha256": "0" * 64}
    with hms.connect(node.address) as connection, connection.session() as session:
        sent = session.producer("files").send(hms.Message.file(source, claims, type="text/plain"))
        seen = connection.admin.view("queue:files", sent.message_id)
        told = dict(decode_head(seen["head"]).node)
        (kept,) = (path for path in (node.store / "files").iterdir() if path.name == told["$File"])
        assert kept.read_bytes() == content
        message = session.consumer("files").receive(WAIT_S)
        info = message.file_info
        message.save(target)

    assert target.getvalue() == content == source.read_bytes()
    assert (info.name, info.size_bytes, info.sha256) == (name, len(content), digest)
    assert told["$FileDigest"] == digest
    assert (message.type, dict(message.properties)) == ("text/plain", claims)


def kept_files(node):
    """Those of other tests among them, which go when it has time."""
    folder = node.store / "files"
    return {*folder.iterdir()} if folder.exists() else set()


def test_bytes_that_a_disk_has_changed_are_told_and_not_delivered(node, tmp_path):
    """The SHA-256 is that of the sender: what does not have it is nobody's file."""
    source, target = tmp_path / "source.bin", tmp_path / "target.bin"
    source.write_bytes(CONTENTS["blocks.bin"])
    with hms.connect(node.address) as connection, connection.session() as session:
        before = kept_files(node)
        session.producer("files").send(hms.Message.file(source))
        (kept,) = kept_files(node) - before
        spoilt = bytearray(kept.read_bytes())
        spoilt[700_000] ^= 1
        kept.chmod(0o600)
        kept.write_bytes(spoilt)
        message = session.consumer("files").receive(WAIT_S)
        with pytest.raises(hms.errors.FileDamaged) as caught:
            message.save(target)

    assert caught.value.fields["wanted"] == hashlib.sha256(source.read_bytes()).hexdigest()
    assert not target.exists()


def test_a_file_that_was_confirmed_is_the_same_behind_a_crash(tmp_path):
    """Kill -9 between the send and the receive."""
    source, target = tmp_path / "source.bin", io.BytesIO()
    source.write_bytes(CONTENTS["blocks.bin"])
    with hms.testing.node(config={"hms": {"queue": {"files": {}}}}) as node:
        with hms.connect(node.address) as connection, connection.session() as session:
            session.producer("files").send(hms.Message.file(source))
        node.kill()
        node.boot()
        with hms.connect(node.address) as connection, connection.session() as session:
            message = session.consumer("files").receive(WAIT_S)
            message.save(target)
    assert target.getvalue() == source.read_bytes()
    assert message.file_info.sha256 == hashlib.sha256(target.getvalue()).hexdigest()
