"""Webhooks that really listen, asked by a server that really serves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from orch.server.admission.webhooks import hooks as admission_hooks
from orch.server.flow import control
from orch.server.webhooks import admission
from tests.fakes.webhook import ALLOW, FakeWebhook, Record, answered, label, patch, serving
from tests.orch.server.harness import (
    LEASES,
    MERGE,
    NAMESPACES,
    PODS,
    Answer,
    Api,
    Pki,
    lease,
    pod,
)

GROUP = "/apis/admissionregistration.orch.io/v1"
PATHS = {
    "Validating": f"{GROUP}/validatingwebhookconfigurations",
    "Mutating": f"{GROUP}/mutatingwebhookconfigurations",
}
MAPS = "/api/v1/namespaces/default/configmaps"
DENIED: Record = {"allowed": False, "status": {"code": 403, "message": "no", "reason": "Forbidden"}}
POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata, resources: [{group: "", resources: [configmaps]}]}]
"""


@pytest.fixture
async def hooks(server_pki: Pki) -> AsyncIterator[FakeWebhook]:
    fake = FakeWebhook(server_pki)
    async with serving(server_pki, fake.answer) as fake.port:
        yield fake


def config_map(name: str = "a", **metadata: Any) -> Record:
    return {"metadata": {"name": name, "labels": {"given": "yes"}, **metadata}, "data": {"a": "b"}}


def rule(*resources: str, operations: tuple[str, ...] = ("*",), group: str = "") -> Record:
    return {
        "operations": list(operations), "apiGroups": [group], "apiVersions": ["v1"],
        "resources": list(resources),
    }  # fmt: skip


async def configure(
    api: Api, hooks: FakeWebhook, kind: str, *each: Record, name: str = "x"
) -> None:
    made = await api.call("POST", PATHS[kind], hooks.configuration(kind, name, *each))
    assert made.status == 201, made.text


async def counted(api: Api, family: str) -> list[str]:
    page = (await api.call("GET", "/metrics", accept="*/*")).text
    return [line for line in page.splitlines() if line.startswith(f"apiserver_admission_{family}")]


async def test_a_webhook_refuses_in_its_own_words(api: Api, hooks: FakeWebhook) -> None:
    hooks.replies["/no"] = lambda _: DENIED
    await configure(api, hooks, "Validating", {"path": "/no"})
    refused = await api.call("POST", MAPS, config_map())
    assert (refused.status, refused.json["reason"]) == (403, "Forbidden")
    text = 'admission webhook "no.webhooks.example.com" denied the request: no'
    assert refused.json["message"] == text
    (asked,) = hooks("/no")
    assert asked["object"]["data"] == {"a": "b"}
    assert asked["oldObject"] is None
    assert asked["userInfo"]["username"] == "admin"
    assert (asked["namespace"], asked["name"], asked["dryRun"]) == ("default", "a", False)
    assert asked["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}


async def test_mutating_webhooks_change_what_is_stored(api: Api, hooks: FakeWebhook) -> None:
    hooks.replies |= {"/one": lambda _: label("one"), "/two": lambda _: label("two")}
    await configure(api, hooks, "Mutating", {"path": "/two"}, name="b")
    await configure(api, hooks, "Mutating", {"path": "/one"}, name="a")
    made = await api.call("POST", MAPS, config_map())
    assert made.json["metadata"]["labels"] == {"given": "yes", "one": "yes", "two": "yes"}
    assert [path for path, _ in hooks.asked] == ["/one", "/two"]  # by their names
    assert hooks("/two")[0]["object"]["metadata"]["labels"]["one"] == "yes"
    changed = await api.call("PATCH", f"{MAPS}/a", {"data": {"c": "d"}}, content_type=MERGE)
    assert changed.status == 200, changed.text
    assert hooks("/one")[1]["oldObject"]["data"] == {"a": "b"}
    stored = (await api.call("GET", f"{MAPS}/a")).json
    assert stored["data"] == {"a": "b", "c": "d"}
    owned = orjson.dumps(stored["metadata"]["managedFields"])
    assert b"f:given" in owned and b"f:one" not in owned  # what webhooks change belongs to none


@pytest.mark.parametrize(
    ("operation", "code", "message"),
    [
        ({"op": "add", "path": "/metadata/labels/a", "value": "-"}, 422, "metadata.labels"),
        ({"op": "replace", "path": "/metadata/name", "value": "b"}, 400, "changes metadata.name"),
        ({"op": "replace", "path": "/kind", "value": "Pod"}, 400, "changes kind"),
        ({"op": "add", "path": "/data", "value": 7}, 422, "data"),
        ({"op": "remove", "path": "/nothing"}, 500, "its patch cannot be applied"),
    ],
)
async def test_what_a_webhook_makes_is_validated(
    api: Api, hooks: FakeWebhook, operation: Record, code: int, message: str
) -> None:
    hooks.replies["/x"] = lambda _: patch(operation)
    await configure(api, hooks, "Mutating", {"path": "/x"})
    refused = await api.call("POST", MAPS, config_map())
    assert (refused.status, message in refused.json["message"]) == (code, True), refused.text


async def test_what_the_server_owns_stays_its_own(api: Api, hooks: FakeWebhook) -> None:
    hooks.replies["/x"] = lambda _: patch(
        {"op": "replace", "path": "/metadata/uid", "value": "mine"},
        {"op": "add", "path": "/metadata/managedFields", "value": []},
    )
    await configure(api, hooks, "Mutating", {"path": "/x"})
    made = await api.call("POST", MAPS, config_map())
    assert made.status == 201, made.text
    assert made.json["metadata"]["uid"] != "mine"
    assert made.json["metadata"]["managedFields"]


async def test_the_steps_of_admission_judge_what_webhooks_change(
    api: Api, hooks: FakeWebhook
) -> None:
    operation = {"op": "replace", "path": "/spec/priorityClassName", "value": "none"}
    hooks.replies["/x"] = lambda _: patch({**operation, "op": "add"})
    await configure(api, hooks, "Mutating", {"path": "/x", "rules": [rule("pods")]})
    refused = await api.call("POST", PODS, pod())
    assert (refused.status, "no PriorityClass" in refused.text) == (403, True)
    assert hooks("/x")[0]["object"]["spec"]["serviceAccountName"] == "default"  # they came first


@pytest.mark.parametrize(("policy", "times"), [("Never", 1), ("IfNeeded", 2)])
async def test_a_webhook_sees_what_later_ones_changed_if_it_wants_to(
    api: Api, hooks: FakeWebhook, policy: str, times: int
) -> None:
    hooks.replies["/late"] = lambda _: label("late")
    first = {"path": "/first", "reinvocationPolicy": policy}
    await configure(api, hooks, "Mutating", first, {"path": "/late"})
    assert (await api.call("POST", MAPS, config_map())).status == 201
    assert [path for path, _ in hooks.asked] == ["/first", "/late", "/first"][: times + 1]
    assert ("late" in hooks("/first")[-1]["object"]["metadata"]["labels"]) == (times == 2)


async def test_deletions_are_asked_about_one_by_one(api: Api, hooks: FakeWebhook) -> None:
    hooks.replies["/x"] = lambda request: DENIED if request["name"] == "kept" else ALLOW
    await configure(
        api,
        hooks,
        "Validating",
        {"path": "/x", "rules": [rule("configmaps", operations=("DELETE",))]},
    )
    for name in ("a", "b", "kept"):
        assert (await api.call("POST", MAPS, config_map(name))).status == 201
    assert (await api.call("DELETE", f"{MAPS}/kept")).status == 403
    assert (await api.call("DELETE", f"{MAPS}/a")).status == 200
    assert (await api.call("DELETE", f"{MAPS}?labelSelector=given")).status == 403
    left = (await api.call("GET", f"{MAPS}?labelSelector=given")).json["items"]
    assert [one["metadata"]["name"] for one in left] == ["kept"]
    assert hooks("/x")[0]["oldObject"]["data"] == {"a": "b"}
    assert {request["object"] is None for request in hooks("/x")} == {True}


STREAM = f"{PODS}/p1/exec?command=ls&container=c&stdout=true"
ACTIONS: list[tuple[str, str, Any, tuple[str, str, str]]] = [
    ("POST", STREAM, None, ("CONNECT", "exec", "PodExecOptions")),
    ("POST", f"{PODS}/p1/attach?stdout=1", None, ("CONNECT", "attach", "PodAttachOptions")),
    ("POST", f"{PODS}/p1/portforward?ports=80", None,
     ("CONNECT", "portforward", "PodPortForwardOptions")),
    ("POST", f"{PODS}/p1/eviction", {}, ("CREATE", "eviction", "Eviction")),
    ("POST", f"{PODS}/free/binding", {"target": {"name": "n2"}}, ("CREATE", "binding", "Binding")),
    ("PATCH", f"{PODS}/p1/status", {"status": {"message": "m"}}, ("UPDATE", "status", "Pod")),
    ("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", {},
     ("CREATE", "token", "TokenRequest")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "body", "wanted"), ACTIONS, ids=[a[3][2] for a in ACTIONS]
)
async def test_what_is_done_to_an_object_is_asked_about(
    api: Api, hooks: FakeWebhook, method: str, path: str, body: Any, wanted: tuple[str, str, str]
) -> None:
    await api.call("POST", PODS, pod("p1", "n1"))
    await api.call("POST", PODS, pod("free"))
    await api.turn("service accounts")
    hooks.replies["/x"] = lambda _: DENIED
    await configure(api, hooks, "Validating", {"path": "/x", "rules": [rule("*/*")]})
    upgrade = {"Upgrade": "SPDY/3.1", "Connection": "Upgrade", "X-Stream-Protocol-Version": "v4"}
    connects = wanted[0] == "CONNECT"
    content = MERGE if method == "PATCH" else "application/json"
    refused = await api.call(
        method, path, body, content_type=content, headers=upgrade if connects else None
    )
    assert (refused.status, "denied the request" in refused.text) == (403, True), refused.text
    (asked,) = hooks("/x")
    got = asked["operation"], asked["subResource"], asked["kind"]["kind"]
    assert got == wanted
    assert asked["object"]["kind"] == wanted[2]


async def test_the_node_proxy_is_asked_about(api: Api, hooks: FakeWebhook) -> None:
    status = {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}
    await api.call("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})
    await api.call("PATCH", "/api/v1/nodes/n1/status", {"status": status}, content_type=MERGE)
    hooks.replies["/x"] = lambda _: DENIED
    await configure(api, hooks, "Validating", {"path": "/x", "rules": [rule("nodes/proxy")]})
    assert (await api.call("GET", "/api/v1/nodes/n1/proxy/metrics?a=b")).status == 403
    assert hooks("/x")[0]["object"]["path"] == "/metrics"


async def test_renewals_of_leases_are_asked_about_only_if_rules_say_so(
    api: Api, hooks: FakeWebhook
) -> None:
    time = "2026-01-01T00:00:0{}.000000Z"
    await api.call("POST", LEASES, lease(renewTime=time.format(1)))
    await configure(api, hooks, "Validating", {"path": "/x"})

    async def renew(second: int) -> Answer:
        sent = (await api.call("GET", f"{LEASES}/n1")).json
        sent["spec"]["renewTime"] = time.format(second)
        return await api.call("PUT", f"{LEASES}/n1", sent)

    assert (await renew(2)).status == 200
    assert not hooks.asked
    rules = [rule("leases", group="coordination.orch.io")]
    await configure(api, hooks, "Validating", {"path": "/y", "rules": rules}, name="y")
    assert (await renew(3)).status == 200
    assert [request["operation"] for request in hooks("/y")] == ["UPDATE"]


async def test_configurations_of_webhooks_can_always_be_changed(
    api: Api, hooks: FakeWebhook
) -> None:
    everything = {
        "operations": ["*"],
        "apiGroups": ["*"],
        "apiVersions": ["*"],
        "resources": ["*/*"],
    }
    hooks.replies["/x"] = lambda _: DENIED
    await configure(api, hooks, "Validating", {"path": "/x", "rules": [everything]})
    assert (await api.call("POST", MAPS, config_map())).status == 403
    assert (await api.call("DELETE", f"{PATHS['Validating']}/x")).status == 200
    assert (await api.call("POST", MAPS, config_map())).status == 201


async def test_the_server_itself_is_not_stopped_by_webhooks(api: Api, hooks: FakeWebhook) -> None:
    hooks.replies["/x"] = lambda request: DENIED if request["operation"] == "DELETE" else ALLOW
    await configure(api, hooks, "Validating", {"path": "/x"})
    await api.call("POST", NAMESPACES, {"metadata": {"name": "gone"}})
    maps = MAPS.replace("default", "gone")
    assert (await api.call("POST", maps, config_map())).status == 201
    assert (await api.call("DELETE", f"{NAMESPACES}/gone")).status == 200
    await api.turn("namespaces")
    assert (await api.call("GET", f"{maps}/a")).status == 404


async def test_a_dry_run_is_asked_about_as_one(api: Api, hooks: FakeWebhook) -> None:
    hooks.replies["/x"] = lambda _: label("seen")
    await configure(api, hooks, "Mutating", {"path": "/x", "sideEffects": "NoneOnDryRun"})
    made = await api.call("POST", f"{MAPS}?dryRun=All", config_map())
    assert made.json["metadata"]["labels"]["seen"] == "yes"
    assert hooks("/x")[0]["dryRun"] is True
    assert (await api.call("GET", f"{MAPS}/a")).status == 404


@pytest.mark.parametrize(
    ("selector", "asked"),
    [
        ({"objectSelector": {"matchLabels": {"given": "yes"}}}, True),
        ({"objectSelector": {"matchLabels": {"given": "no"}}}, False),
        ({"namespaceSelector": {"matchLabels": {"orch.io/metadata.name": "x"}}}, False),
        ({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}},
         True),
    ],
)  # fmt: skip
async def test_selectors_choose(
    api: Api, hooks: FakeWebhook, selector: Record, asked: bool
) -> None:
    await configure(api, hooks, "Validating", {"path": "/x", **selector})
    assert (await api.call("POST", MAPS, config_map())).status == 201
    assert bool(hooks.asked) == asked


@pytest.mark.parametrize(("policy", "status"), [("Fail", 500), ("Ignore", 201)])
async def test_a_webhook_that_is_away_counts_as_its_policy_says(
    api: Api, hooks: FakeWebhook, unused_tcp_port: int, policy: str, status: int
) -> None:
    away = {**hooks.client_config("/x"), "url": f"https://127.0.0.1:{unused_tcp_port}/x"}
    hook = {"path": "/x", "clientConfig": away, "failurePolicy": policy}
    await configure(api, hooks, "Validating", hook)
    answer = await api.call("POST", MAPS, config_map())
    assert answer.status == status
    name = 'name="x.webhooks.example.com"'
    if status == 500:
        text = 'Internal error occurred: failed calling webhook "x.webhooks.example.com": '
        assert answer.json["message"].startswith(text)
        (line,) = await counted(api, "webhook_rejection_count{")
        assert 'error_type="calling_webhook_error"' in line
    else:
        (line,) = await counted(api, "webhook_fail_open_count{")
        assert f'{{{name},type="validating"}} 1.0' in line


async def test_codes_above_600_are_counted_as_600(api: Api, hooks: FakeWebhook) -> None:
    codes = iter((599, 601, 70_000))
    hooks.replies["/x"] = lambda _: {"allowed": False, "status": {"code": next(codes)}}
    await configure(api, hooks, "Validating", {"path": "/x"})
    got = [(await api.call("POST", MAPS, config_map())).status for _ in range(3)]
    assert got == [599, 500, 500]
    lines = await counted(api, "webhook_rejection_count{")
    assert [(line.split('rejection_code="')[1][:3], line[-3:]) for line in lines] == [
        ("599", "1.0"), ("600", "2.0"),
    ]  # fmt: skip
    requests = await counted(api, "webhook_request_total{")
    assert sorted(line.split('code="')[1][:3] for line in requests) == ["599", "600"]
    (line,) = await counted(api, "webhook_admission_duration_seconds_count{")
    assert line.endswith(" 3.0")


async def test_warnings_and_annotations_are_passed_on(
    server_pki: Pki, tmp_path: Path, hooks: FakeWebhook
) -> None:
    (tmp_path / "policy").write_text(POLICY)
    log = tmp_path / "audit"
    api = await Api.start(
        server_pki, tmp_path / "data", "--audit-log-path", str(log),
        "--audit-policy-file", str(tmp_path / "policy"),
    )  # fmt: skip
    more = {"warnings": ["mind the gap", *map(str, range(100))], "auditAnnotations": {"k": "v"}}
    hooks.replies["/x"] = lambda _: label("one") | more
    hooks.replies["/y"] = lambda _: {**ALLOW, "auditAnnotations": {"k": "w"}}
    await configure(api, hooks, "Mutating", {"path": "/x"})
    await configure(api, hooks, "Validating", {"path": "/y"})
    made = await api.call("POST", MAPS, config_map())
    assert made.headers["Warning"] == '299 - "mind the gap"'
    assert len(made.headers.getall("Warning")) == 16  # type: ignore[attr-defined]
    await api.stop()
    (event,) = map(orjson.loads, log.read_bytes().splitlines())
    found = event["annotations"]
    assert found["x.webhooks.example.com/k"] == "v"
    assert found["y.webhooks.example.com/k"] == "w"
    mutation = found["mutation.webhook.admission.orch.io/round_0_index_0"]
    assert orjson.loads(mutation) == {
        "configuration": "x", "webhook": "x.webhooks.example.com", "mutated": True,
    }  # fmt: skip


async def test_a_change_of_the_configuration_counts_at_once(api: Api, hooks: FakeWebhook) -> None:
    await configure(api, hooks, "Validating", {"path": "/x"})
    hooks.replies |= {"/y": lambda _: DENIED}
    changed = hooks.configuration("Validating", "x", {"path": "/y"})
    assert (await api.call("PUT", f"{PATHS['Validating']}/x", changed)).status == 200
    assert (await api.call("POST", MAPS, config_map())).status == 403
    assert (await api.call("DELETE", f"{PATHS['Validating']}/x")).status == 200
    assert (await api.call("POST", MAPS, config_map())).status == 201


async def test_a_webhook_may_be_written_for_the_references_groups(
    server_pki: Pki, tmp_path: Path, hooks: FakeWebhook
) -> None:
    api = await Api.start(server_pki, tmp_path / "data", "--serve-upstream-aliases")
    rules = [rule("roles", group="rbac.authorization.k8s.io")]
    hooks.replies["/eq"] = lambda _: patch(
        {"op": "add", "path": "/rules/0/apiGroups/-", "value": "coordination.k8s.io"}
    )
    await configure(
        api, hooks, "Mutating", {"path": "/eq", "rules": rules},
        {"path": "/exact", "rules": rules, "matchPolicy": "Exact"},
    )  # fmt: skip
    body = {
        "metadata": {"name": "r"},
        "rules": [{"verbs": ["get"], "resources": ["x"], "apiGroups": ["node.orch.io"]}],
    }
    path = "/apis/rbac.authorization.{}/v1/namespaces/default/roles"
    made = await api.call("POST", path.format("orch.io"), body)
    assert made.json["rules"][0]["apiGroups"] == ["node.orch.io", "coordination.orch.io"]
    (asked,) = hooks.asked
    assert asked[0] == "/eq"
    shown = asked[1]["object"]
    assert shown["apiVersion"] == "rbac.authorization.k8s.io/v1"
    assert shown["rules"][0]["apiGroups"] == ["node.k8s.io"]
    assert asked[1]["requestKind"]["group"] == "rbac.authorization.orch.io"
    body["metadata"]["name"] = "s"  # type: ignore[index]
    assert (await api.call("POST", path.format("k8s.io"), body)).status == 201
    assert len(hooks("/exact")) == 1
    await api.stop()


async def test_a_slow_webhook_stops_nobody_else(
    server_pki: Pki, tmp_path: Path, hooks: FakeWebhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a single seat for everybody, and more waiting than the webhook takes at a time."""
    monkeypatch.setattr(admission, "AT_ONCE", 4)
    answer = asyncio.Event()

    async def hang(_request: web.Request, review: Record) -> web.Response:
        await answer.wait()
        return web.json_response(answered(review, **ALLOW))

    hooks.raw["/slow"] = hang
    one_each = "--max-requests-inflight=1", "--max-mutating-requests-inflight=1"
    api = await Api.start(server_pki, tmp_path / "data", *one_each)
    await configure(api, hooks, "Validating", {"path": "/slow", "timeoutSeconds": 30})
    names = [f"m{number}" for number in range(9)]
    waiting = [asyncio.ensure_future(api.call("POST", MAPS, config_map(n))) for n in names]
    async with asyncio.timeout(20):
        while hooks.at_once < 4:
            await asyncio.sleep(0.01)
        made = await api.call("POST", NAMESPACES, {"metadata": {"name": "other"}})
        assert made.status == 201
        assert not any(task.done() for task in waiting)
        answer.set()
        assert {one.status for one in await asyncio.gather(*waiting)} == {201}
    assert hooks.most_at_once == 4
    assert api.server.flows.in_flight["mutating"] == 0
    await api.stop()


async def test_a_refused_request_leaves_no_seat_taken(api: Api, hooks: FakeWebhook) -> None:
    hooks.replies["/x"] = lambda _: DENIED
    await configure(api, hooks, "Validating", {"path": "/x"})
    await asyncio.gather(*(api.call("POST", MAPS, config_map(f"m{n}")) for n in range(8)))
    assert api.server.flows.in_flight == {"readOnly": 0, "mutating": 0}
    async with control.aside():
        pass  # outside of any request it does nothing


async def test_there_are_only_so_many_configurations(
    api: Api, hooks: FakeWebhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission_hooks, "MAX_CONFIGURATIONS", 2)
    for name in ("a", "b"):
        await configure(api, hooks, "Validating", {"path": "/x"}, name=name)
    await configure(api, hooks, "Mutating", {"path": "/x"})
    third = hooks.configuration("Validating", "c", {"path": "/x"})
    refused = await api.call("POST", PATHS["Validating"], third)
    assert (refused.status, "there are 2 already" in refused.json["message"]) == (403, True)


async def huge(request: web.Request, _review: Record) -> web.StreamResponse:
    """A gigabyte, if that is read."""
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(1024):
        await response.write(b" " * 2**20)
    return response


async def drip(request: web.Request, _review: Record) -> web.StreamResponse:
    """A byte now and then, for ever."""
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.05)


async def redirect(request: web.Request, _review: Record) -> web.StreamResponse:
    raise web.HTTPTemporaryRedirect(f"{request.url.origin()}/elsewhere")


@pytest.mark.parametrize(
    ("reply", "why"),
    [(huge, "more than 3 MiB"), (drip, "within its 1 s"), (redirect, "the server answered 307")],
)
async def test_a_hostile_webhook_is_cut_off(
    api: Api, hooks: FakeWebhook, reply: Any, why: str
) -> None:
    hooks.raw["/x"] = reply
    await configure(
        api, hooks, "Mutating", {"path": "/x", "timeoutSeconds": 1 if reply is drip else 9}
    )
    refused = await api.call("POST", MAPS, config_map())
    assert (refused.status, why in refused.json["message"]) == (500, True), refused.text
    assert [path for path, _ in hooks.asked] == ["/x"]
