"""The names that applications import, and what importing them costs."""

import importlib
import subprocess
import sys

import pytest

import hms
import tpmon

API = (
    "connect context Queue Topic Message AckMode DeliveryMode Receipt Selector HmsError "
    "aio testing Event EventKind Session Producer Consumer Browser HMS_CHAR HMS_CLIENT_ACK "
    "hms_recvex hms_create_session QueueFull TpTimeout ConnectionLost"
)
TMAX = (
    "tpstart tpend tpcall tpacall tpgetrply tpcancel tpconnect tpsend tprecv tpdiscon tpalloc "
    "tprealloc tpfree tptypes tpsetunsol tpbroadcast tpsubscribe tpunsubscribe tppost gettperrno "
    "gettpurcode tpstrerror Server service Request tpreturn tpforward tpadvertise tpunadvertise"
)


@pytest.mark.parametrize(("module", "promised"), [(hms, API), (tpmon, TMAX)])
def test_every_promised_name_is_there(module, promised):
    """These names are a contract."""
    names = promised.split()

    assert [name for name in names if not hasattr(module, name)] == []
    assert set(names) <= set(module.__all__)
    assert set(module.__all__) <= set(dir(module))


def test_an_unknown_name_is_an_attribute_error():
    """hasattr() and getattr() with a default rely on it."""
    assert not hasattr(hms, "no_such_name")
    assert not hasattr(tpmon, "no_such_name")


@pytest.mark.parametrize("home", sorted(set(tpmon._HOMES.values())))
def test_the_table_of_names_says_where_they_are(home):
    """It is written by hand, so that looking for a name loads nothing else."""
    module = importlib.import_module(home)

    assert {name for name, where in tpmon._HOMES.items() if where == home} == set(module.__all__)


def test_looking_for_a_module_of_tpmon_loads_no_server():
    """A module that imports another of its package must not come upon half a server."""
    program = (
        "import sys; from tpmon import flags; import tpmon; assert not hasattr(tpmon, 'nothing'); "
        "tpmon.TPESYSTEM; print('tpmon.server' in sys.modules, 'tpmon.calls' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=250, check=True
    )

    assert done.stdout.split() == ["False", "False"]


def test_importing_hms_loads_no_zeromq():
    """A program that only names messages or errors starts at once."""
    program = "import sys, hms; hms.Message, hms.Queue, hms.HmsError; print('zmq' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=250, check=True
    )

    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("function", [tpmon.tpconnect, tpmon.tpcall, tpmon.tppost])
def test_what_needs_a_connection_says_so(function):
    """TPEPROTO names the cause better than a fault inside would."""
    with pytest.raises(hms.NotConnected):
        function("SVC")
    assert tpmon.gettperrno() == tpmon.TPEPROTO
