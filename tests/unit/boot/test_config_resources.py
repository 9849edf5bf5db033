"""[rm.NAME] in hms.conf: what is refused, and that no secret stands there."""

import pytest

from hms.boot.config import effective, load
from hms.errors.catalogue import ConfigError

NODE = '[node.one]\nlisten = ["tcp://127.0.0.1:7700"]\n'


def _load(tmp_path, text):
    path = tmp_path / "hms.conf"
    path.write_text(NODE + text)
    return load(path)


def test_a_resource_manager_is_loaded_with_its_secret_named_only(tmp_path):
    """What the node tells its clients, and prints, must never be the secret itself."""
    config = _load(
        tmp_path,
        '[rm.bank]\nkind = "postgresql"\n'
        'open = "postgresql://bank@db/a"\npassword = "file:secret"\n',
    )

    assert config.resources["bank"].password == f"file:{tmp_path / 'secret'}"
    assert effective(config)["rm"]["bank"]["kind"] == "postgresql"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('kind = "oracle"\nopen = "oracle://db"', "kind"),
        ('kind = "mariadb"', "open"),
        ('kind = "mariadb"\nopen = "postgresql://u@db/a"', "wants mariadb://"),
        ('kind = "mariadb"\nopen = "mariadb://u:secret@db/a"', "a password does not stand"),
        ('kind = "mariadb"\nopen = "mariadb://u@db/a"\npassword = "secret"', "env:NAME"),
        ('kind = "sqlite"\nopen = "sqlite:a.db"', "last_resource = true"),
        ('kind = "mariadb"\nopen = "mariadb://u@db/a"\nlast_resource = true', "no last resource"),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(tmp_path, text, said):
    """A fault in the file must be found before the first transaction."""
    with pytest.raises(ConfigError) as raised:
        _load(tmp_path, f"[rm.bank]\n{text}\n")

    assert said in str(raised.value)
    assert "u:secret@" not in str(raised.value)


def test_the_node_itself_needs_no_section(tmp_path):
    """hms.rm("hms") is the node; a database of that name could never be reached."""
    with pytest.raises(ConfigError, match="hms is the node itself"):
        _load(tmp_path, '[rm.hms]\nkind = "mariadb"\nopen = "mariadb://u@db/a"\n')
