"""The rules of what may be evicted are those of `kubectl drain` (pkg/drain/filters.go)."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from orch.ctl.nodes import drain
from orch.wire.names import ANNOTATION_CONFIG_MIRROR
from tests.fakes.http_api import Answer, HttpApi
from tests.orch.ctl.conftest import Orchctl

N1 = "/api/v1/nodes/n1"
PODS = "/api/v1/namespaces/d/pods"
OK = Answer({"kind": "Status", "status": "Success"}, 201)
BUSY = {"kind": "Status", "reason": "TooManyRequests", "message": "budget", "code": 429}


def _pod(api: HttpApi, name: str, **metadata: Any) -> str:
    owner = {"ownerReferences": [{"kind": "ReplicaSet", "controller": True}]}
    path = f"{PODS}/{name}"
    api.put(path, {"metadata": {"name": name, "namespace": "d", **owner, **metadata}})
    return path


@pytest.fixture(autouse=True)
def _node(api: HttpApi) -> None:
    api.put("/api/v1/nodes/n1", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})


async def test_a_node_is_cordoned_its_pods_evicted_and_waited_for(
    orchctl: Orchctl, api: HttpApi
) -> None:
    path = _pod(api, "web")
    api.answers["POST", f"{path}/eviction"] = OK
    here = api.objects[path]
    gone = Answer({"kind": "Status", "reason": "NotFound", "code": 404}, 404)
    api.answers["GET", path] = [Answer(here), gone]
    result = await orchctl("drain", "n1", "--grace-period", "7")
    assert (result.code, result.err) == (0, "")
    assert result.lines == [
        "node/n1 cordoned", "evicting pod d/web", "pod/web evicted", "node/n1 drained",
    ]  # fmt: skip
    (sent,) = api.sent("POST")
    assert (sent.body["apiVersion"], sent.body["kind"]) == ("policy/v1", "Eviction")
    assert sent.body["metadata"] == {"name": "web", "namespace": "d"}
    assert sent.body["deleteOptions"] == {"gracePeriodSeconds": 7}
    (listed,) = [r for r in api.sent("GET") if r.path == "/api/v1/pods"]
    assert listed.query["fieldSelector"] == "spec.nodeName=n1"
    assert api.objects["/api/v1/nodes/n1"]["spec"] == {"unschedulable": True}


async def test_nothing_is_evicted_when_something_would_be_lost(
    orchctl: Orchctl, api: HttpApi
) -> None:
    _pod(api, "good")
    _pod(api, "bare", ownerReferences=[])
    result = await orchctl("drain", "n1")
    assert (result.code, api.sent("POST")) == (1, [])
    assert result.err == (
        "error: node/n1 stays as it is, cordoned: d/bare (has no controller: --force deletes it "
        "for good)\n"
    )


async def test_a_dry_run_that_is_refused_says_nothing_of_a_cordon(
    orchctl: Orchctl, api: HttpApi
) -> None:
    _pod(api, "bare", ownerReferences=[])
    result = await orchctl("drain", "n1", "--dry-run=client")
    assert result.err.startswith("error: node/n1 stays as it is: d/bare (has no controller")
    assert "spec" not in api.objects["/api/v1/nodes/n1"]


async def test_a_budget_that_is_used_up_is_asked_again(
    orchctl: Orchctl, api: HttpApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "RETRY_S", 0.01)
    path = _pod(api, "web")
    api.answers["POST", f"{path}/eviction"] = [Answer(BUSY, 429), OK]
    api.answers["GET", path] = Answer({"kind": "Status", "code": 404}, 404)
    assert (await orchctl("drain", "n1")).code == 0
    assert len(api.sent("POST")) == 2


async def test_a_drain_that_takes_too_long_says_how_to_see_the_rest(
    orchctl: Orchctl, api: HttpApi
) -> None:
    path = _pod(api, "web")
    api.answers["POST", f"{path}/eviction"] = OK
    result = await orchctl("drain", "n1", "--timeout", "50ms")
    assert result.code == 1
    assert "node/n1 is not drained after 0.05 s: 'orchctl get pods -A" in result.err


async def test_a_pod_that_cannot_be_evicted_fails_the_node_and_the_others_go(
    orchctl: Orchctl, api: HttpApi
) -> None:
    broken, good = _pod(api, "broken"), _pod(api, "good")
    api.answers["POST", f"{broken}/eviction"] = Answer("the store is full", 500)
    api.answers["POST", f"{good}/eviction"] = OK
    api.answers["GET", good] = Answer({"kind": "Status", "code": 404}, 404)
    result = await orchctl("drain", "n1")
    assert result.code == 1
    assert "pod/good evicted" in result.lines
    assert "node/n1 drained" not in result.lines
    assert "the store is full" in result.err


async def test_pods_may_be_deleted_instead(orchctl: Orchctl, api: HttpApi) -> None:
    path = _pod(api, "web")
    assert (await orchctl("drain", "n1", "--disable-eviction")).code == 0
    assert (api.sent("POST"), path in api.objects) == ([], False)


@pytest.mark.parametrize(("how", "asked"), [("client", 0), ("server", 1)])
async def test_dry_runs_move_nothing(orchctl: Orchctl, api: HttpApi, how: str, asked: int) -> None:
    path = _pod(api, "web")
    api.answers["POST", f"{path}/eviction"] = OK
    result = await orchctl("drain", "n1", f"--dry-run={how}")
    assert (result.code, len(api.sent("POST"))) == (0, asked)
    note = "dry run" if how == "client" else "server dry run"
    assert result.lines[-1] == f"node/n1 drained ({note})"
    assert all(request.query.get("dryRun") == "All" for request in api.sent("POST"))


NOTHING = {"ignore_daemonsets": False, "delete_emptydir_data": False, "force": False}
ALL = dict.fromkeys(NOTHING, True)


def _record(owner: str = "", *, scratch: bool = False, phase: str = "Running") -> dict[str, Any]:
    owners = [{"kind": owner, "controller": True}] if owner else [{"kind": "X"}]
    volumes = [{"name": "v", "emptyDir": {}}] if scratch else []
    return {
        "metadata": {"ownerReferences": owners},
        "spec": {"volumes": volumes},
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("pod", "allowed", "outcome", "why"),
    [
        (_record("ReplicaSet"), {}, "evict", ""),
        (_record(), {}, "refuse", "has no controller: --force"),
        (_record(), {"force": True}, "evict", "has no controller: it is gone"),
        (_record("DaemonSet"), {}, "refuse", "--ignore-daemonsets"),
        (_record("DaemonSet", scratch=True), ALL, "leave", "stays: its daemon set"),
        (_record("ReplicaSet", scratch=True), {}, "refuse", "--delete-emptydir-data"),
        (_record("ReplicaSet", scratch=True), {"delete_emptydir_data": True}, "evict", ""),
        (_record(scratch=True, phase="Succeeded"), {}, "evict", ""),
        (_record(phase="Failed"), {}, "evict", ""),
    ],
)
def test_a_pod_is_judged_by_what_would_be_lost(
    pod: dict[str, Any], allowed: dict[str, bool], outcome: str, why: str
) -> None:
    decision = drain.decide(pod, argparse.Namespace(**{**NOTHING, **allowed}))
    assert decision.outcome == outcome
    assert why in decision.why
    assert bool(why) == bool(decision.why)


def test_a_mirror_pod_belongs_to_its_node() -> None:
    pod = {"metadata": {"annotations": {ANNOTATION_CONFIG_MIRROR: "x"}}}
    assert drain.decide(pod, argparse.Namespace(**ALL)) == ("leave", "")


async def test_a_node_is_cordoned_once(orchctl: Orchctl, api: HttpApi) -> None:
    api.put(N1, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    assert (await orchctl("cordon", "n1")).out == "node/n1 cordoned\n"
    (sent,) = api.sent("PATCH")
    assert sent.body == {"spec": {"unschedulable": True}}
    assert sent.headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert api.objects[N1]["spec"] == {"unschedulable": True}
    assert (await orchctl("cordon", "node/n1")).out == "node/n1 already cordoned\n"
    assert len(api.sent("PATCH")) == 1


async def test_the_other_nodes_are_cordoned_when_one_is_missing(
    orchctl: Orchctl, api: HttpApi
) -> None:
    api.put(N1, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    result = await orchctl("cordon", "n0", "n1")
    assert (result.code, result.out) == (1, "node/n1 cordoned\n")
    assert 'nodes "n0" not found' in result.err


async def test_a_node_is_uncordoned_once(orchctl: Orchctl, api: HttpApi) -> None:
    api.put(N1, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
                   "spec": {"unschedulable": True}})  # fmt: skip
    assert (await orchctl("uncordon", "n1")).out == "node/n1 uncordoned\n"
    assert api.sent("PATCH")[0].body == {"spec": {"unschedulable": None}}
    assert api.objects[N1]["spec"] == {}
    assert (await orchctl("uncordon", "n1")).out == "node/n1 already uncordoned\n"
