from __future__ import annotations

import contextlib

import pytest
from prometheus_client import CollectorRegistry, Gauge

from orch.server.limits import Inflight
from orch.server.request.attributes import RequestInfo
from orch.wire.errors import ApiError
from orch.wire.records.authentication import Identity

USER = Identity("u")
MASTER = Identity("m", ("system:masters",))
READ = RequestInfo("list", "/api/v1/pods", is_resource=True, resource="pods")
WRITE = RequestInfo("create", "/api/v1/pods", is_resource=True, resource="pods")
WATCH = RequestInfo("watch", "/api/v1/pods", is_resource=True, resource="pods")


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def inflight(registry: CollectorRegistry) -> Inflight:
    gauge = Gauge("inflight", "text", ("request_kind",), registry=registry)
    return Inflight(gauge, max_reads=2, max_writes=1)


def test_reads_and_writes_have_bounds_of_their_own(inflight, registry) -> None:
    with contextlib.ExitStack() as stack:
        stack.enter_context(inflight.admit(USER, READ))
        stack.enter_context(inflight.admit(USER, READ))
        stack.enter_context(inflight.admit(USER, WRITE))
        assert registry.get_sample_value("inflight", {"request_kind": "readOnly"}) == 2
        for one_more in (READ, WRITE):
            with pytest.raises(ApiError) as caught, inflight.admit(USER, one_more):
                pass
            assert (caught.value.code, caught.value.retry_after_s) == (429, 1)
    with inflight.admit(USER, WRITE):
        pass
    assert registry.get_sample_value("inflight", {"request_kind": "mutating"}) == 0


def test_watches_are_not_counted_and_the_privileged_not_held_up(inflight) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(inflight.admit(MASTER, WRITE))
            stack.enter_context(inflight.admit(USER, WATCH))


def test_a_failed_request_is_no_longer_under_way(inflight, registry) -> None:
    with pytest.raises(ZeroDivisionError), inflight.admit(USER, WRITE):
        raise ZeroDivisionError
    assert registry.get_sample_value("inflight", {"request_kind": "mutating"}) == 0
