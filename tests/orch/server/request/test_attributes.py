from __future__ import annotations

from urllib.parse import parse_qsl

import pytest

from orch.server.request.attributes import RequestInfo, is_true, parse_request

# From AS:endpoints/request/requestinfo_test.go, with this service's kinds:
# method, path?query → verb, group, version, namespace, resource, subresource, name
TABLE = [
    ("GET", "/api/v1/namespaces", "list", "", "v1", "", "namespaces", "", ""),
    ("GET", "/api/v1/namespaces/other", "get", "", "v1", "other", "namespaces", "", "other"),
    ("PUT", "/api/v1/namespaces/o/finalize", "update", "", "v1", "o", "namespaces",
     "finalize", "o"),
    ("GET", "/api/v1/namespaces/o/status", "get", "", "v1", "o", "namespaces", "status", "o"),
    ("GET", "/api/v1/namespaces/o/pods", "list", "", "v1", "o", "pods", "", ""),
    ("GET", "/api/v1/namespaces/o/pods/", "list", "", "v1", "o", "pods", "", ""),
    ("GET", "/api/v1/namespaces/o/pods/foo", "get", "", "v1", "o", "pods", "", "foo"),
    ("HEAD", "/api/v1/namespaces/o/pods/foo", "get", "", "v1", "o", "pods", "", "foo"),
    ("HEAD", "/api/v1/namespaces/o/pods", "list", "", "v1", "o", "pods", "", ""),
    ("GET", "/api/v1/pods", "list", "", "v1", "", "pods", "", ""),
    ("GET", "/api/v1/pods?watch=true", "watch", "", "v1", "", "pods", "", ""),
    ("GET", "/api/v1/pods?watch=1", "watch", "", "v1", "", "pods", "", ""),
    ("GET", "/api/v1/pods?watch=", "watch", "", "v1", "", "pods", "", ""),
    ("GET", "/api/v1/pods?watch=false", "list", "", "v1", "", "pods", "", ""),
    ("GET", "/api/v1/pods?watch=0", "list", "", "v1", "", "pods", "", ""),
    ("GET", "/api/v1/namespaces/o/pods/foo?watch=1", "get", "", "v1", "o", "pods", "", "foo"),
    ("POST", "/api/v1/namespaces/o/pods", "create", "", "v1", "o", "pods", "", ""),
    ("PUT", "/api/v1/namespaces/o/pods/foo", "update", "", "v1", "o", "pods", "", "foo"),
    ("PATCH", "/api/v1/namespaces/o/pods/p/status", "patch", "", "v1", "o", "pods", "status", "p"),
    ("DELETE", "/api/v1/namespaces/o/pods/foo", "delete", "", "v1", "o", "pods", "", "foo"),
    ("DELETE", "/api/v1/namespaces/o/pods", "deletecollection", "", "v1", "o", "pods", "", ""),
    ("POST", "/api/v1/namespaces/o/pods/p/binding", "create", "", "v1", "o", "pods",
     "binding", "p"),
    ("GET", "/api/v1/namespaces/o/pods/p/exec", "create", "", "v1", "o", "pods", "exec", "p"),
    ("GET", "/api/v1/namespaces/o/pods/p/attach", "create", "", "v1", "o", "pods", "attach", "p"),
    ("PUT", "/api/v1/namespaces/o/pods/p/exec", "create", "", "v1", "o", "pods", "exec", "p"),
    ("GET", "/api/v1/namespaces/o/pods/p/portforward?ports=1", "create", "", "v1", "o", "pods",
     "portforward", "p"),
    ("GET", "/api/v1/namespaces/o/pods/exec", "get", "", "v1", "o", "pods", "", "exec"),
    ("GET", "/api/v1/nodes/n/proxy/a/b", "get", "", "v1", "", "nodes", "proxy", "n"),
    ("GET", "/api/v1/nodes/n/proxy/exec/o/p/c", "create", "", "v1", "", "nodes", "proxy", "n"),
    ("GET", "/api/v1/nodes/n/proxy/attach", "create", "", "v1", "", "nodes", "proxy", "n"),
    ("GET", "/api/v1/nodes/n/proxy//%70ortForward/o", "create", "", "v1", "", "nodes", "proxy",
     "n"),
    ("HEAD", "/api/v1/nodes/n/proxy/run%2Fo%2Fp", "create", "", "v1", "", "nodes", "proxy", "n"),
    ("GET", "/api/v1/nodes/n/proxy/runningpods/", "get", "", "v1", "", "nodes", "proxy", "n"),
    ("GET", "/api/v1/nodes/n/proxy/a/exec", "get", "", "v1", "", "nodes", "proxy", "n"),
    ("GET", "/api/v1/nodes/n/log/exec", "get", "", "v1", "", "nodes", "log", "n"),
    ("POST", "/api/v1/nodes/n:10250/proxy/", "create", "", "v1", "", "nodes", "proxy", "n:10250"),
    ("GET", "/apis/g.io/v1/namespaces/o/leases/x", "get", "g.io", "v1", "o", "leases", "", "x"),
    ("GET", "/apis/g.io/v1/leases", "list", "g.io", "v1", "", "leases", "", ""),
    ("GET", "//api/v1//pods", "list", "", "v1", "", "pods", "", ""),
    ("GET", "/%61pi/v1/%70ods", "list", "", "v1", "", "pods", "", ""),
    ("GET", "/api%73/g%2Eio/%76%31/leases", "list", "g.io", "v1", "", "leases", "", ""),
    ("GET", "/api/v1/namespaces/o/pods/a%2Fb", "get", "", "v1", "o", "pods", "", "a/b"),
    ("GET", "/api/v1/namespaces/o%2Fpods/x", "list", "", "v1", "o/pods", "x", "", ""),
    (
        "GET", "/api/v1/nodes?fieldSelector=metadata.name%3Dn1",
        "list", "", "v1", "", "nodes", "", "n1",
    ),
    (
        "GET", "/api/v1/nodes?watch=1&fieldSelector=metadata.name%3D%3Dn1",
        "watch", "", "v1", "", "nodes", "", "n1",
    ),
    (
        "DELETE", "/api/v1/namespaces/o/pods?fieldSelector=metadata.name%3Dx",
        "deletecollection", "", "v1", "o", "pods", "", "x",
    ),
    (
        "GET", "/api/v1/nodes?fieldSelector=metadata.name!%3Dn1",
        "list", "", "v1", "", "nodes", "", "",
    ),
    (
        "GET", "/api/v1/nodes?fieldSelector=metadata.name%3Da%2Fb",
        "list", "", "v1", "", "nodes", "", "",
    ),
    ("GET", "/api/v1/nodes?fieldSelector=nonsense", "list", "", "v1", "", "nodes", "", ""),
]  # fmt: skip


def parse(method: str, url: str) -> RequestInfo:
    path, _, query = url.partition("?")
    return parse_request(method, path, dict(parse_qsl(query, keep_blank_values=True)))


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0]} {row[1]}")
def test_a_resource_request_is_read_from_its_path(row: tuple[str, ...]) -> None:
    info = parse(row[0], row[1])
    assert info.is_resource
    assert (
        info.verb, info.group, info.version, info.namespace, info.resource, info.subresource,
        info.name,
    ) == row[2:]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", "/api"),
        ("GET", "/api/v1"),
        ("GET", "/apis"),
        ("GET", "/apis/g.io"),
        ("GET", "/apis/g.io/v1"),
        ("GET", "/healthz"),
        ("POST", "/apis/g.io/v1/"),
        ("GET", "/openapi/v3/api/v1/pods"),
        ("DELETE", "/apix/v1/pods"),
    ],
)
def test_other_paths_are_themselves_with_the_method_as_verb(method: str, path: str) -> None:
    info = parse(method, path)
    assert not info.is_resource
    assert (info.verb, info.path) == (method.lower(), path)


@pytest.mark.parametrize(
    ("path", "rest"),
    [
        ("/api/v1/nodes/n/proxy", ""),
        ("/api/v1/nodes/n/proxy/", "/"),
        ("/api/v1/nodes/n/proxy/a/b", "/a/b"),
        ("/api/v1/nodes/n/proxy/a%2Fb/", "/a%2Fb/"),
        ("/api/v1/nodes/n/proxy//a//b", "//a//b"),
        ("//api/v1//nodes/n/proxy/x", "/x"),
        ("/api/v1/nodes/n", ""),
        ("/api/v1/nodes", ""),
        ("/api/v1/namespaces/o/pods/p/proxy/x/y", "/x/y"),
    ],
)
def test_the_rest_of_the_path_is_kept_as_it_was_sent(path: str, rest: str) -> None:
    assert parse("GET", path).rest == rest


def test_selectors_are_kept_for_who_decides_by_them() -> None:
    info = parse("GET", "/api/v1/pods?labelSelector=a%3Db&fieldSelector=spec.nodeName%3Dn1")
    assert (info.label_selector, info.field_selector) == ("a=b", "spec.nodeName=n1")


@pytest.mark.parametrize(
    ("path", "long"),
    [
        ("/api/v1/pods?watch=1", True),
        ("/api/v1/nodes/n/proxy/x", True),
        ("/api/v1/pods", False),
        ("/healthz", False),
    ],
)
def test_watches_and_proxied_requests_are_long_running(path: str, long: bool) -> None:
    assert parse("GET", path).is_long_running is long


@pytest.mark.parametrize(
    ("value", "true"),
    [(None, False), ("", True), ("1", True), ("yes", True), ("0", False), ("False", False)],
)
def test_a_flag_is_true_unless_it_says_otherwise(value: str | None, true: bool) -> None:
    assert is_true(value) is true


def test_what_was_asked_before_is_no_answer_for_another_method_or_query() -> None:
    path = "/api/v1/namespaces/a/pods"
    first = parse_request("GET", path, {})
    assert parse_request("GET", path, {}) is first
    assert parse_request("POST", path, {}).verb == "create"
    assert parse_request("GET", path, {"watch": "1"}).verb == "watch"
    assert parse_request("GET", path, {"labelSelector": "a=b"}).label_selector == "a=b"
    assert parse_request("GET", path, {}).verb == "list"


def test_long_paths_are_read_alike_and_not_remembered() -> None:
    path = f"/api/v1/namespaces/a/pods/{'x' * 300}"
    first, again = (parse_request("GET", path, {}) for _ in range(2))
    assert first == again
    assert first.name == "x" * 300
    assert first is not again
