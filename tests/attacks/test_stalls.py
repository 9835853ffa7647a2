"""One request keeps the API server from everything else for 50 ms at most, whatever is in it.

Each is sent by a user who may, and is refused, or just below the bound that would refuse it. The
witness tells the longest stall under each group of them.
"""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from orch.server.request import protobuf
from tests.attacks import harness
from tests.attacks.harness import MALLORY, RBAC, TENANT, Attacked, head

pytestmark = pytest.mark.alone

CORE = f"/api/v1/namespaces/{TENANT}"
ROLES = f"{RBAC}/namespaces/{TENANT}/roles"
BINDINGS = f"{RBAC}/namespaces/{TENANT}/rolebindings"
REVIEWS = "/apis/authorization.orch.io/v1"
DRY = "?dryRun=All"
JSON, YAML = "application/json", "application/yaml"
MERGE, STRATEGIC, PATCH = (
    f"application/{form}+json" for form in ("merge-patch", "strategic-merge-patch", "json-patch")
)
MANY = 4_500  # elements of four values each: just below the bound


class Attack(NamedTuple):
    """A request; `status` is the expected answer."""

    user: str
    method: str
    path: str
    make: Callable[[], object]
    status: int
    form: str = JSON


def named(name: str, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, **fields}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return named(name, spec={"containers": [{"name": "a", "image": "b"}], **spec})


def rules(count: int, **fields: list[str]) -> list[dict[str, Any]]:
    rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["nodes"], **fields}
    return [{**rule, "resourceNames": [f"n{number}"]} for number in range(count)]


def text(start: str, middle: str, count: int, end: str) -> bytes:
    """A JSON text that would take long to write out."""
    return f"{start}{middle * count}{end}".encode()


def tolerations(count: int) -> list[dict[str, Any]]:
    return [{"key": f"k{number}", "operator": "Exists"} for number in range(count)]


def fields_of(message: bytes, count: int) -> bytes:
    """A protobuf Pod whose spec repeats a field."""

    def field(number: int, value: bytes) -> bytes:
        length, out = len(value), bytearray([number << 3 | 2])
        while length > 127:
            out.append(length & 127 | 128)
            length >>= 7
        return bytes(out) + bytes([length]) + value

    kind = field(1, field(1, b"v1") + field(2, b"Pod"))
    spec = field(2, field(1, b"a") + field(2, b"b")) + message * count
    return protobuf.MAGIC + kind + field(2, field(1, field(1, b"p")) + field(2, spec))


def selector(term: str, count: int) -> str:
    return ",".join(term.format(number) for number in range(count))


def review(**attributes: Any) -> dict[str, Any]:
    return {"spec": {"resourceAuthorizationAttributes": {"verb": "get", **attributes}}}


POD, LONG = f"{CORE}/pods/victim", f"{CORE}/pods/long"
ATTACKS: dict[str, dict[str, Attack]] = {
    "patches": {
        "a patch that removes many values": Attack(
            TENANT,
            "PATCH",
            LONG + DRY,
            lambda: {
                "spec": {
                    "containers": [
                        {
                            "name": "a",
                            "$deleteFromPrimitiveList/args": [f"x{n}" for n in range(18_000)],
                        }
                    ]
                }
            },
            422,
            STRATEGIC,
        ),
        "a patch that arranges many elements": Attack(
            TENANT,
            "PATCH",
            POD + DRY,
            lambda: {"spec": {"volumes": [{"name": f"v{n}"} for n in range(9_000)]}},
            422,
            STRATEGIC,
        ),
        "a patch of one element again and again": Attack(
            TENANT,
            "PATCH",
            LONG + DRY,
            lambda: {"spec": {"containers": [{"name": "a", "stdin": True}] * 6_000}},
            413,
            STRATEGIC,
        ),
        "a patch with retained keys": Attack(
            TENANT,
            "PATCH",
            POD + DRY,
            lambda: {
                "spec": {
                    "$retainKeys": [f"x{n}" for n in range(9_000)],
                    **{f"x{n}": "" for n in range(9_000)},
                }
            },
            422,
            STRATEGIC,
        ),
        "a patch with 20 000 tolerations": Attack(
            TENANT, "PATCH", POD, lambda: {"spec": {"tolerations": tolerations(20_000)}}, 413, MERGE
        ),
        "a patch with 4 500 tolerations": Attack(
            TENANT, "PATCH", POD, lambda: {"spec": {"tolerations": tolerations(MANY)}}, 200, MERGE
        ),
        "10 000 removals from the front of a list": Attack(
            TENANT,
            "PATCH",
            LONG + DRY,
            lambda: [{"op": "remove", "path": "/spec/containers/0/args/0"}] * 10_000,
            413,
            PATCH,
        ),
        "10 000 removals from a sent list": Attack(
            TENANT,
            "PATCH",
            POD,
            lambda: text(
                '[{"op":"add","path":"/spec/x","value":[0',
                ",0",
                1_000_000,
                "]}" + ',{"op":"remove","path":"/spec/x/0"}' * 9_999 + "]",
            ),
            413,
            PATCH,
        ),
        "10 000 tests": Attack(
            TENANT,
            "PATCH",
            LONG + DRY,
            lambda: [{"op": "test", "path": "/kind", "value": "Pod"}] * 10_000,
            200,
            PATCH,
        ),
        "a patch that makes a large object": Attack(
            TENANT,
            "PATCH",
            LONG + DRY,
            lambda: [{"op": "add", "path": "/spec/x", "value": [0] * 50_000}],
            413,
            PATCH,
        ),
        "10 000 copies": Attack(
            TENANT,
            "PATCH",
            LONG + DRY,
            lambda: [{"op": "copy", "from": "/spec", "path": "/spec/x"}] * 6_000,
            413,
            PATCH,
        ),
    },
    "roles": {
        "a role of 2 000 rules that are not held": Attack(
            TENANT, "POST", ROLES, lambda: named("greedy", rules=rules(2_000)), 403
        ),
        "a role of 7 800 parts that are not held": Attack(
            TENANT,
            "POST",
            ROLES,
            lambda: named("greedy", rules=rules(1_300, verbs=list("abcdef"))),
            403,
        ),
        "a role of 2 000 rules that are held": Attack(
            TENANT,
            "POST",
            ROLES,
            lambda: named("rich", rules=rules(2_000, resources=["pods"])),
            201,
        ),
        "a binding to many subjects": Attack(
            TENANT,
            "POST",
            BINDINGS,
            lambda: named(
                "crowd",
                roleRef={"kind": "ClusterRole", "name": "view"},
                subjects=[{"kind": "User", "name": f"u{n}"} for n in range(MANY)],
            ),
            201,
        ),
        "a binding to many others": Attack(
            TENANT,
            "PUT",
            f"{BINDINGS}/crowd",
            lambda: named(
                "crowd",
                roleRef={"kind": "ClusterRole", "name": "view"},
                subjects=[{"kind": "User", "name": f"v{n}"} for n in range(MANY)],
            ),
            200,
        ),
    },
    "reviews": {
        "a review of many numbers": Attack(
            MALLORY,
            "POST",
            f"{REVIEWS}/selfsubjectaccessreviews",
            lambda: text('{"spec":{"x":[0', ",0", 1_490_000, "]}}"),
            413,
        ),
        "a review of many lists": Attack(
            MALLORY,
            "POST",
            f"{REVIEWS}/selfsubjectaccessreviews",
            lambda: text('{"spec":{"x":[[]', ",[]", 990_000, "]}}"),
            413,
        ),
        "a review of an endless selector": Attack(
            MALLORY,
            "POST",
            f"{REVIEWS}/selfsubjectaccessreviews",
            lambda: review(labelSelector={"rawSelector": "a," * 1_490_000}),
            201,
        ),
        "a review of many requirements": Attack(
            MALLORY,
            "POST",
            f"{REVIEWS}/selfsubjectaccessreviews",
            lambda: review(
                labelSelector={"requirements": [{"key": "!" * 60, "operator": "Exists"}] * MANY}
            ),
            422,
        ),
        "a review of many values": Attack(
            MALLORY,
            "POST",
            f"{REVIEWS}/selfsubjectaccessreviews",
            lambda: review(
                labelSelector={
                    "requirements": [
                        {"key": "a", "operator": "In", "values": [f"v{n}" for n in range(19_000)]}
                    ]
                }
            ),
            201,
        ),
        "a review of one's own rules": Attack(
            TENANT,
            "POST",
            f"{REVIEWS}/selfsubjectrulesreviews",
            lambda: {"spec": {"namespace": TENANT}},
            201,
        ),
    },
    "YAML": {
        "directives, each of which is compared with all": Attack(
            TENANT,
            "POST",
            CORE + "/configmaps",
            lambda: b"".join(b"%%TAG !%x! a\n" % n for n in range(100_000)) + b"--- {}",
            400,
            YAML,
        ),
        "a long prefix for each of many tags": Attack(
            TENANT,
            "POST",
            CORE + "/configmaps",
            lambda: b"%TAG !a! " + b"b" * 1_000_000 + text("\n--- [", "!a!b c,", 18_000, "d]"),
            400,
            YAML,
        ),
        "aliases of a long text": Attack(
            TENANT,
            "POST",
            CORE + "/configmaps",
            lambda: b"a: &a " + b"b" * 1_000_000 + text("\nc: [", "*a,", 18_000, "*a]"),
            400,
            YAML,
        ),
        "the longest text": Attack(
            TENANT,
            "POST",
            CORE + "/configmaps" + DRY,
            lambda: b"metadata: {name: x}\ndata:\n a: |\n" + b"  b\n" * 390_000,
            201,
            YAML,
        ),
        "a number without end": Attack(
            TENANT,
            "POST",
            CORE + "/configmaps",
            lambda: b"a: 1." + b"1" * 1_550_000 + b"e",
            422,
            YAML,
        ),
    },
    "bodies": {
        "many values": Attack(
            TENANT,
            "POST",
            f"{CORE}/configmaps",
            lambda: text('{"metadata":{},"data":{', '"a":"b",', 370_000, '"c":"d"}}'),
            413,
        ),
        "three megabytes of commas in a text": Attack(
            TENANT,
            "POST",
            f"{CORE}/configmaps" + DRY,
            lambda: named("x", data={"a": ',[{"' * 250_000}),
            201,
        ),
        "deep nesting": Attack(
            TENANT, "POST", f"{CORE}/configmaps", lambda: b'{"a":' * 19_000, 400
        ),
        "many fields twice, below a long name": Attack(
            TENANT,
            "POST",
            f"{CORE}/configmaps?dryRun=All&fieldValidation=Strict",
            lambda: text('{"' + "x" * 1_000_000 + '":{', '"abc":1,', 19_000, '"a":1}}'),
            400,
        ),
        "many unknown fields": Attack(
            TENANT,
            "POST",
            f"{CORE}/pods?dryRun=All&fieldValidation=Strict",
            lambda: pod("x", tolerations=[{"x" * 60: n} for n in range(9_000)]),
            400,
        ),
        "many wrong values": Attack(
            TENANT, "POST", f"{CORE}/pods" + DRY, lambda: pod("x", containers=[1] * 19_000), 400
        ),
        "many missing values": Attack(
            TENANT,
            "POST",
            f"{CORE}/pods" + DRY,
            lambda: pod("x", securityContext={"sysctls": [{}] * 9_000}),
            400,
        ),
        "many invalid labels": Attack(
            TENANT,
            "POST",
            f"{CORE}/configmaps" + DRY,
            lambda: {"metadata": {"labels": {f"-{n}": "-" for n in range(18_000)}}},
            422,
        ),
    },
    "pods": {
        "many invalid names": Attack(
            TENANT,
            "POST",
            f"{CORE}/pods" + DRY,
            lambda: pod(
                "x", containers=[{"name": "a", "image": "b", "env": [{"name": "="}] * 9_000}]
            ),
            422,
        ),
        "many amounts": Attack(
            TENANT,
            "POST",
            f"{CORE}/pods" + DRY,
            lambda: pod(
                "x",
                containers=[
                    {
                        "name": "a",
                        "image": "b",
                        "resources": {"limits": {f"a.b/r{n}": f"{n}.5Gi" for n in range(9_000)}},
                    }
                ],
            ),
            201,
        ),
        "many containers": Attack(
            TENANT,
            "POST",
            f"{CORE}/pods" + DRY,
            lambda: pod("x", containers=[{"name": f"c{n}", "image": "b"} for n in range(1_000)]),
            201,
        ),
        "many variables": Attack(
            TENANT,
            "POST",
            f"{CORE}/pods",
            lambda: pod(
                "variables",
                containers=[
                    {
                        "name": "a",
                        "image": "b",
                        "env": [
                            {
                                "name": f"v{n}",
                                "valueFrom": {"secretKeyRef": {"name": f"s{n}", "key": "k"}},
                            }
                            for n in range(3_000)
                        ],
                    }
                ],
            ),
            201,
        ),
        "many owners": Attack(
            TENANT,
            "POST",
            f"{CORE}/configmaps" + DRY,
            lambda: {
                "metadata": {
                    "name": "x",
                    "ownerReferences": [
                        {"apiVersion": "v1", "kind": "Pod", "name": f"p{n}", "uid": f"{n}"}
                        for n in range(3_900)
                    ],
                }
            },
            422,
        ),
        "many owners of one uid": Attack(
            TENANT,
            "POST",
            f"{CORE}/configmaps" + DRY,
            lambda: {
                "metadata": {
                    "name": "x",
                    "ownerReferences": [
                        {"apiVersion": "v1", "kind": "Pod", "name": f"p{n}", "uid": "u" * 600}
                        for n in range(3_900)
                    ],
                }
            },
            201,
        ),
        "many values in YAML": Attack(
            TENANT,
            "POST",
            f"{CORE}/configmaps" + DRY,
            lambda: (
                b"metadata: {name: x}\ndata:\n"
                + b"".join(b"  k%d: v\n" % number for number in range(19_000))
            ),
            201,
            "application/yaml",
        ),
        "many fields in protobuf": Attack(
            TENANT,
            "POST",
            f"{CORE}/pods" + DRY,
            lambda: fields_of(b"\xb2\x01\x03\x0a\x01k", 5_900),
            201,
            "application/vnd.kubernetes.protobuf",
        ),
    },
    "lists": {
        "a large object for people": Attack(
            TENANT, "GET", f"{BINDINGS}/crowd?pretty=true", lambda: None, 200
        ),
        "a list of every object by many terms": Attack(
            TENANT,
            "GET",
            f"{CORE}/configmaps?labelSelector=" + selector("!{}", 100),
            lambda: None,
            200,
        ),
        "a list by too many terms": Attack(
            TENANT,
            "GET",
            f"{CORE}/configmaps?labelSelector=" + selector("!{}", 1_500),
            lambda: None,
            400,
        ),
        "a watch of every object by many terms": Attack(
            TENANT,
            "GET",
            f"{CORE}/configmaps?watch=1&timeoutSeconds=1&labelSelector=" + selector("!{}", 100),
            lambda: None,
            200,
        ),
        "a collection deleted": Attack(TENANT, "DELETE", f"{CORE}/configmaps", lambda: None, 200),
    },
}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    with harness.attacked(tmp_path_factory.mktemp("stalls")) as running:
        harness.grant(running, TENANT, namespace=TENANT, role="admin")
        args = [f"x{number}" for number in range(18_000)]
        long = {"name": "a", "image": "b", "args": args}
        running.make(f"{CORE}/pods", pod("victim"), pod("long", containers=[long]))
        running.make(f"{CORE}/configmaps", *(named(f"c{number}") for number in range(100)))
        yield running


@pytest.mark.parametrize("group", ATTACKS)
def test_no_request_keeps_the_server_from_the_others(target: Attacked, group: str) -> None:
    bodies = {name: encoded(attack.make()) for name, attack in ATTACKS[group].items()}
    answers = {}
    with target.witnessed() as seen:
        for name, attack in ATTACKS[group].items():
            sent = attack.user, attack.method, attack.path, bodies[name]
            answers[name] = target.ask(*sent, Content_Type=attack.form)
    for name, answer in answers.items():
        assert answer.status == ATTACKS[group][name].status, (name, answer.body[:500])
    harness.no_long_stall(seen)


def test_what_is_parsed_for_many_readers_at_once_keeps_nobody_waiting(target: Attacked) -> None:
    """Tables of a large object, watched 150 times and listed 60 times, take turns of the loop."""
    table = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io"
    change = encoded({"metadata": {"annotations": {"changed": "once"}}})
    context = target.context()
    with ExitStack() as stack:

        def ask(query: str) -> ssl.SSLSocket:
            raw = socket.create_connection(("127.0.0.1", target.port), timeout=30)
            opened = stack.enter_context(context.wrap_socket(raw, server_hostname="127.0.0.1"))
            opened.sendall(head(TENANT, "GET", f"{CORE}/pods?{query}", 0, table))
            return opened

        watches = [ask(f"watch=1&labelSelector=n!%3Dx{number // 2}") for number in range(150)]
        for watch in watches:
            while b"long" not in watch.recv(65_536):
                continue
        with target.witnessed() as seen:
            assert target.ask(TENANT, "PATCH", LONG, change, Content_Type=MERGE).status == 200
            for watch in watches:
                while b"MODIFIED" not in watch.recv(65_536):
                    continue
            for opened in [ask("includeObject=None") for _ in range(60)]:
                assert opened.recv(12) == b"HTTP/1.1 200"
    harness.no_long_stall(seen)


def encoded(body: object) -> bytes | None:
    return body if isinstance(body, bytes | None) else json.dumps(body).encode()
