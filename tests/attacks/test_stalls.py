"""One request keeps the API server from everything else for 50 ms at most, whatever is in it.

Each is sent by a user who may, and is refused, or just below the bound that would refuse it. The
witness tells the longest stall under each group of them.
"""

from __future__ import annotations

import base64
import json
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.attacks import harness
from tests.attacks.costly import (
    BINDINGS,
    CORE,
    LONG,
    MANY,
    MERGE,
    ROLES,
    named,
    pod,
    rules,
    selector,
)
from tests.attacks.costly_changes import CHANGES
from tests.attacks.costly_requests import REQUESTS
from tests.attacks.flood import flooding
from tests.attacks.harness import NEIGHBOUR, TENANT, Attacked, head

pytestmark = pytest.mark.alone
ATTACKS = {**CHANGES, **REQUESTS}
SMALL = f"{CORE}/secrets"
FLOOD_S = 3.0
LATE_MS = 75.0  # of p99: what such a flood makes it that goes to another server of the machine
LEASES = f"/apis/coordination.orch.io/v1/namespaces/{TENANT}/leases"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    directory = tmp_path_factory.mktemp("stalls")
    signing = f"--service-account-signing-key-file={directory / 'pki' / 'server.key'}"
    with harness.attacked(directory, harness.AT_ANY_RATE, signing) as running:
        harness.grant(running, TENANT, namespace=TENANT, role="admin")
        args = [f"x{number}" for number in range(18_000)]
        long = {"name": "a", "image": "b", "args": args}
        running.make(f"{CORE}/pods", pod("victim"), pod("long", containers=[long]))
        wide = {f"k{number}": "theirs" for number in range(9_000)}
        running.make(f"{CORE}/configmaps", *(named(f"c{number}") for number in range(100)))
        running.make(f"{CORE}/configmaps", named("wide", data=wide))
        variables = [{"name": f"v{number}", "value": ""} for number in range(4_000)]
        ordered = {"name": "a", "image": "b", "env": variables}
        running.make(f"{CORE}/pods", pod("ordered", containers=[ordered]))
        groups = [{"kind": "Group", "name": f"g{number}"} for number in range(MANY)]
        for name, count in {"large": 2_000, **{f"small{n}": 1 for n in range(20)}}.items():
            running.make(ROLES, named(name, rules=rules(count, resources=["pods"])))
            bound = {"roleRef": {"kind": "Role", "name": name}, "subjects": groups}
            running.make(BINDINGS, named(name, **bound))
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


@pytest.mark.parametrize("query", ["", "labelSelector=n!%3Dx", "watch=1&labelSelector=n!%3Dx"])
def test_lists_of_many_small_objects_keep_nobody_waiting(target: Attacked, query: str) -> None:
    """By 200 clients that leave: each was found out in one go, and all computed in each turn."""
    if "remainingItemCount" not in target.ask(TENANT, "GET", f"{SMALL}?limit=1").json()["metadata"]:
        target.make_small(SMALL, 15_000)
    asked = head(TENANT, "GET", f"{SMALL}?{query}", 0)
    with target.witnessed() as seen, flooding(target, [asked], 200, FLOOD_S) as answers:
        time.sleep(FLOOD_S)
    print(seen)
    assert answers[200] > 0
    harness.no_long_stall(seen)
    harness.others_undisturbed(seen, limit_ms=LATE_MS)


def test_a_watch_that_begins_long_ago_keeps_nobody_waiting(target: Attacked) -> None:
    """Nothing of the 36 MB that came since is for it; all of them were read in one go."""
    listed = target.ask(TENANT, "GET", f"{CORE}/configmaps?limit=1").json()
    start = listed["metadata"]["resourceVersion"]
    data = {f"k{number}": "x" * 30 for number in range(15_000)}
    body = encoded(named("long-ago", data=data))
    target.make(f"{CORE}/configmaps", named("long-ago"))
    for number in range(60):
        changed = body.replace(b"xx", b"%02d" % number, 1)
        assert target.ask(TENANT, "PUT", f"{CORE}/configmaps/long-ago", changed).status == 200
    query = f"watch=1&timeoutSeconds=1&labelSelector=none&resourceVersion={start}"
    with target.witnessed() as seen:
        assert target.ask(TENANT, "GET", f"{CORE}/configmaps?{query}").body == b""
    harness.no_long_stall(seen)


@pytest.mark.parametrize("terms", [1, 100])
def test_watches_by_terms_keep_nobody_waiting(target: Attacked, terms: int) -> None:
    """400 of them, when 64 objects are deleted, all of which are held against the terms. Thirteen
    labels are kept as JSON.
    """
    query = "watch=1&labelSelector=" + selector("!k{}", terms)
    labels = {f"l{number}": "" for number in range(13)}
    leases = [{"metadata": {"name": f"l{number}", "labels": labels}} for number in range(64)]
    target.make(LEASES, *leases)
    with ExitStack() as stack:
        for _ in range(400):
            watch = stack.enter_context(target.open())
            watch.sendall(head(TENANT, "GET", f"{LEASES}?{query}", 0))
            assert watch.recv(12) == b"HTTP/1.1 200"
        with target.witnessed() as seen:
            assert target.ask(TENANT, "DELETE", LEASES).status == 200
            received = b""
            while b"DELETED" not in received:
                received = received[-6:] + watch.recv(65_536)
    harness.no_long_stall(seen)


def test_long_paths_of_strangers_keep_nobody_waiting(target: Attacked) -> None:
    request = f"GET /api/v1/{'%41/' * 2000} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with target.witnessed() as seen, flooding(target, [request.encode()], 300, 3.0) as answers:
        pass
    assert answers[401] > 100, answers
    harness.no_long_stall(seen)


def test_long_tokens_of_strangers_keep_nobody_waiting(target: Attacked) -> None:
    """Of 8 kB, as if they were signed here: they are read before there is a seat."""
    path = f"/api/v1/namespaces/{TENANT}/serviceaccounts/default/token"
    own = target.ask(TENANT, "POST", path, {}).json()["status"]["token"].split(".")
    header, claims = (json.loads(base64.urlsafe_b64decode(f"{part}==")) for part in own[:2])
    parts = {**header, "x": [[]] * 1400}, {"iss": claims["iss"]}
    made = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
    request = b"GET /api HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s.%s.%s\r\n\r\n"
    asked = request % (*made, own[2].encode())
    with target.witnessed() as seen, flooding(target, [asked], 100, FLOOD_S) as answers:
        time.sleep(FLOOD_S)
    print(seen)
    assert answers[401] > 100, answers
    harness.no_long_stall(seen)


def test_limits_of_many_resources_for_many_containers_keep_nobody_waiting(
    target: Attacked,
) -> None:
    amounts = {f"a.b/r{number}": "1" for number in range(16)}
    limits = {"type": "Container", "default": amounts, "defaultRequest": amounts, "max": amounts}
    place = f"/api/v1/namespaces/{NEIGHBOUR}"
    target.make(f"{place}/limitranges", named("many", spec={"limits": [limits]}))
    containers = [{"name": f"c{number}", "image": "b"} for number in range(1000)]
    body = encoded(pod("many", containers=containers))
    with target.witnessed() as seen:
        assert target.ask(NEIGHBOUR, "POST", f"{place}/pods", body).status == 413
    harness.no_long_stall(seen)


def encoded(body: object) -> bytes | None:
    return body if isinstance(body, bytes | None) else json.dumps(body).encode()
