"""AT-45: files from elsewhere, and places that somebody else has prepared: what they name leads
nowhere, and nothing outside is written."""

import json
import os
import shutil
import socket
from contextlib import closing

import pytest
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from hms.history.backups.backup_manifest import MANIFEST, _own_digest
from hms.testing import node


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A node with messages, a backup of it, and an export."""
    folder = tmp_path_factory.mktemp("paths")
    with node(config={"hms": {"queue": {"orders": {}, "other": {}}}}) as running:
        running.folder = folder
        with hms.connect(running.address) as connection, connection.session() as session:
            content = folder / "content"
            content.write_bytes(b"of a file")
            out = session.producer(hms.Queue("orders"))
            out.send(b"plain")
            out.send(hms.Message.file(content))
        run(running, "backup", "create", "--to", str(folder / "kept"))
        (running.backup,) = (folder / "kept").iterdir()
        running.export = folder / "orders.jsonl"
        run(running, "message", "export", "queue:orders", "--to", str(running.export))
        yield running


def run(running, *words, code=0):
    done = CliRunner().invoke(main, [*words, "--config", str(running.config_file)])
    assert done.exit_code == code, done.output
    return done.output


def seen(folder):
    """Every file outside of what is tried, by what it has."""
    every = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return {path: path.read_bytes() for path in every}


def named(backup, was, name):
    """The manifest calls a file otherwise, and its own digest fits."""
    said = json.loads((backup / MANIFEST).read_text())
    del said["sha256"]
    if was == "base":
        said["base"] = name
    else:
        (one,) = [f for f in said["files"] if f["name"].startswith(was)][:1]
        source = backup / one["name"]
        one["name"] = name
        target = backup / name
        if name != ".." and not target.exists() and not name.endswith("/"):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(source, target)
    said["sha256"] = _own_digest(said)
    (backup / MANIFEST).write_text(json.dumps(said, indent=1, sort_keys=True) + "\n")


NAMES = [
    "files/../../outside",
    "../outside",
    "files/../../../outside.audit",
    "files/a/b",
    "..",
]


@pytest.mark.parametrize("name", NAMES)
def test_at_45_a_backup_whose_names_lead_elsewhere_is_refused(made, tmp_path, name):
    """Whoever made it could write where the operator may."""
    backup = tmp_path / "in" / "deep" / made.backup.name
    shutil.copytree(made.backup, backup)
    named(backup, "files/", name)
    before = seen(tmp_path)
    for words in (["verify", str(backup)], ["restore", str(backup), "--to", str(tmp_path / "new")]):
        assert "is no name of a file in it" in run(made, "backup", *words, code=1)
    assert seen(tmp_path) == before
    assert not (tmp_path / "new").exists()


def test_at_45_a_backup_that_follows_one_elsewhere_is_refused(made, tmp_path):
    """It would be read from anywhere."""
    backup = tmp_path / "in" / made.backup.name
    shutil.copytree(made.backup, backup)
    shutil.copytree(made.backup, tmp_path / "elsewhere")
    named(backup, "base", "../elsewhere")
    assert "is no name of a file in it" in run(made, "backup", "verify", str(backup), code=1)


@pytest.mark.parametrize("kind", ["link", "pipe", "socket", "link to a folder"])
def test_at_45_links_and_devices_in_a_backup_are_refused(made, tmp_path, kind):
    """A link would put what it leads to into the new store, a pipe is read for ever."""
    backup = tmp_path / made.backup.name
    shutil.copytree(made.backup, backup)
    secret, (file, *_) = tmp_path / "secret", [*(backup / "files").iterdir()]
    shutil.copy(file, secret)
    odd = backup / "odd"
    if kind == "link":
        file.unlink()
        file.symlink_to(secret)
    elif kind == "pipe":
        os.mkfifo(odd)
    elif kind == "socket":
        with closing(socket.socket(socket.AF_UNIX)) as one:
            one.bind(str(odd))
    else:
        odd.symlink_to(tmp_path)
    for words in (["verify", str(backup)], ["restore", str(backup), "--to", str(tmp_path / "new")]):
        assert "it is a link or a device" in run(made, "backup", *words, code=1)
    assert not (tmp_path / "new").exists()


def export(made, path, *more, code=0):
    return run(made, "message", "export", "queue:orders", "--to", str(path), *more, code=code)


def test_at_45_an_export_writes_into_no_link_and_replaces_no_device(made, tmp_path):
    """Links that somebody has laid where root is going to write are an old trick."""
    victim = tmp_path / "victim"
    victim.write_text("of somebody else")
    away = tmp_path / "away"
    away.mkdir()
    (tmp_path / "a.part").symlink_to(victim)
    export(made, tmp_path / "a")
    assert victim.read_text() == "of somebody else"
    assert (tmp_path / "a").read_bytes().count(b"\n") == 4
    (tmp_path / "b").symlink_to(victim)
    os.mkfifo(tmp_path / "c")
    (tmp_path / "d.files").symlink_to(away)
    (tmp_path / "e").symlink_to(tmp_path / "nowhere")
    for name in "bcde":
        before = {one.name: one.lstat().st_ino for one in tmp_path.iterdir()}
        said = export(made, tmp_path / name, "--replace", code=1)
        assert "no file" in said or "no directory" in said
        assert {one.name: one.lstat().st_ino for one in tmp_path.iterdir()} == before
    assert victim.read_text() == "of somebody else"
    assert not [*away.iterdir()]


def test_at_45_an_import_reads_files_and_nothing_else(made, tmp_path):
    """A pipe would wait for ever, a device has no end; a name in it leads nowhere."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", "/dev/null"):
        said = run(made, "message", "import", str(path), "--into", "other", code=1)
        assert "it is no regular file" in said
    copy = tmp_path / "copy.jsonl"
    shutil.copy(made.export, copy)
    shutil.copytree(f"{made.export}.files", f"{copy}.files")
    (file,) = (tmp_path / "copy.jsonl.files").iterdir()
    secret = tmp_path / "secret"
    file.rename(secret)
    file.symlink_to(secret)
    assert "nothing was imported" in run(
        made, "message", "import", str(copy), "--into", "other", code=1
    )
    with hms.connect(made.address) as connection:
        assert connection.administer("queue.show", {"name": "other"})["waiting"] == 0
