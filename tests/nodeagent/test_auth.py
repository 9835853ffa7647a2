"""Path to subresource, and who may: the reference agent's table and the agent's own rules."""

import pytest

from nodeagent.auth import Attributes, attributes_of, authorize
from orch.wire.errors import ApiError
from orch.wire.identity import Identity

# nodeagent.md, section 8.2
PATHS = [
    ("GET", "/stats/summary", "get", ("stats",)),
    ("POST", "/stats/summary", "create", ("stats",)),
    ("GET", "/metrics", "get", ("metrics",)),
    ("GET", "/metrics/resource", "get", ("metrics",)),
    ("DELETE", "/metrics/slis", "delete", ("metrics",)),
    ("POST", "/checkpoint/ns/pod/c", "create", ("checkpoint",)),
    ("GET", "/pods", "get", ("pods", "proxy")),
    ("GET", "/runningpods/", "get", ("pods", "proxy")),
    ("GET", "/healthz/ping", "get", ("healthz", "proxy")),
    ("GET", "/configz", "get", ("configz", "proxy")),
    ("GET", "/statsfoo", "get", ("proxy",)),
    ("GET", "/", "get", ("proxy",)),
    ("TRACE", "/pods", "", ("pods", "proxy")),
]


@pytest.mark.parametrize(("method", "path", "verb", "subresources"), PATHS)
def test_a_request_asks_for_the_subresources_of_its_path(
    method: str, path: str, verb: str, subresources: tuple[str, ...]
) -> None:
    assert attributes_of(method, path) == Attributes(verb, subresources)


ADMIN = Identity("admin", ("system:masters",))
APISERVER = Identity("system:apiserver", ())
MONITORING = Identity("prometheus", ("system:monitoring",))
NOBODY = Identity("somebody", ("system:authenticated",))

RIGHTS = [
    (ADMIN, "POST", "/checkpoint/a/b/c", 200),
    (APISERVER, "POST", "/checkpoint/a/b/c", 200),
    (APISERVER, "TRACE", "/pods", 403),
    (MONITORING, "GET", "/metrics/resource", 200),
    (MONITORING, "GET", "/stats/summary", 200),
    (MONITORING, "GET", "/healthz", 200),
    (MONITORING, "DELETE", "/metrics/slis", 403),
    (MONITORING, "GET", "/pods", 403),
    (MONITORING, "POST", "/checkpoint/a/b/c", 403),
    (NOBODY, "GET", "/healthz", 403),
    (None, "GET", "/healthz", 401),
    (None, "POST", "/checkpoint/a/b/c", 401),
]


@pytest.mark.parametrize(("identity", "method", "path", "code"), RIGHTS)
def test_only_who_holds_the_right_gets_in(
    identity: Identity | None, method: str, path: str, code: int
) -> None:
    attributes = attributes_of(method, path)
    if code == 200:
        authorize(identity, attributes)
        return
    with pytest.raises(ApiError) as caught:
        authorize(identity, attributes)
    assert caught.value.code == code
