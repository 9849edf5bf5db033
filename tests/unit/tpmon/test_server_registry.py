"""@service and tpreturn: what may be a service, and what a service may return."""

import pytest

from hms.errors.catalogue import InvalidArgument, ServiceNotFound, ServiceTaken
from tpmon import service_functions as registries
from tpmon.constants import TPEXIT, TPFAIL, TPSUCCESS
from tpmon.service_functions import Registry, ServiceResult, service, tpforward, tpreturn


@pytest.fixture
def registry(monkeypatch):
    """A registry of the test's own in the place of the process's."""
    monkeypatch.setattr(registries, "registry", Registry())
    return registries.registry


def test_a_service_has_the_name_it_is_given_or_that_of_its_function(registry):
    """Both ways of writing it are what a reader would guess."""

    @service("ORDER_SVC")
    def order(request): ...

    @service
    def echo(request): ...

    @service()
    def upper(request): ...

    assert registry.names == ["ORDER_SVC", "echo", "upper"]
    assert registry.find("ORDER_SVC") is order


def test_two_functions_cannot_have_one_name(registry):
    """Which of them runs would depend on the order of imports."""

    @service("SAME")
    def first(request): ...

    with pytest.raises(ServiceTaken):

        @service("SAME")
        def second(request): ...

    assert registry.find("SAME") is first


def test_one_function_may_have_two_names_and_be_registered_twice(registry):
    """An alias is no conflict, nor is a module that is imported under two paths of thought."""

    def echo(request): ...

    for name in ("ECHO", "ECHO", "PING"):
        service(name)(echo)

    assert registry.names == ["ECHO", "PING"]


async def _generator(request):
    yield request


def test_an_async_generator_is_refused_at_import(registry):
    """A conversation runs in the thread of its call."""
    with pytest.raises(InvalidArgument, match="async generator"):
        service("LATER")(_generator)


@pytest.mark.parametrize("name", ["", "x" * 128, "a\tb"])
def test_a_name_that_the_node_would_refuse_is_refused_at_import(registry, name):
    """The fault is seen where it was written."""
    with pytest.raises(InvalidArgument):
        service(name)(lambda _: None)


def test_a_service_that_is_not_there_is_not_found(registry):
    """A call may come for one that was taken back a moment ago."""
    with pytest.raises(ServiceNotFound):
        registry.find("GONE")
    with pytest.raises(ServiceNotFound):
        registry.remove("GONE")


def test_tpreturn_records_what_the_service_returns():
    """It is returned, not jumped out of: a finally behind it still runs."""
    assert tpreturn(TPSUCCESS, 7, "data") == ServiceResult(TPSUCCESS, 7, "data")
    assert tpreturn(TPEXIT).rval == TPEXIT


@pytest.mark.parametrize(("rval", "rcode"), [(0, 0), (8, 0), (TPFAIL, 1 << 63), (TPFAIL, "1")])
def test_tpreturn_refuses_what_cannot_be_sent(rval, rcode):
    """A result that cannot be encoded would leave the caller waiting."""
    with pytest.raises(InvalidArgument):
        tpreturn(rval, rcode)


def test_tpforward_records_who_goes_on_with_the_call():
    """The other service answers the caller; this one only says which."""
    result = tpforward("NEXT", b"data")

    assert (result.forward, result.data) == ("NEXT", b"data")
    with pytest.raises(InvalidArgument):
        tpforward("", b"")


def test_a_service_says_what_it_takes_and_whether_it_is_a_conversation(registry):
    """Two servers of one name must agree in it; the node compares these words."""

    def talk(_):
        yield

    registry.add("PLAIN", lambda _: None)
    registry.add("TALK", talk)
    registry.add("TYPED", lambda _: None, takes=["STRING", "JSON"])

    signatures = [registry.signature(name) for name in registry.names]
    assert signatures == ["request", "conversation", "request of JSON or STRING"]
    with pytest.raises(InvalidArgument):
        registry.add("WRONG", lambda _: None, takes="FML32")
