"""Requests to a server whose namespaces have a policy: refused, warned of, put on record.

K:staging/src/k8s.io/pod-security-admission/admission/admission_test.go
"""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from orch.wire.names import ANNOTATION_CONFIG_MIRROR
from tests.orch.server.admission.pod_security.cases import CASES, MINIMAL
from tests.orch.server.harness import MERGE, NAMESPACES, Api, Pki, node

UP = "pod-security.kubernetes.io/"
OWN = "pod-security.orch.io/"
TEAM = f"{NAMESPACES}/team"
PODS = f"{TEAM}/pods"
PRIVILEGED = (
    'privileged (container "c" must not set securityContext.privileged=true),'
    ' allowPrivilegeEscalation != false (container "c" must set'
    " securityContext.allowPrivilegeEscalation=false)"
)


async def make_team(api: Api, **modes: str) -> None:
    """The namespace `team`; `_` in the name of a mode stands for `-`."""
    labels = {f"{UP}{mode.replace('_', '-')}": level for mode, level in modes.items()}
    body = {"metadata": {"name": "team", "labels": labels}}
    assert (await api.call("POST", NAMESPACES, body)).status == 201


async def label(api: Api, **labels: str | None) -> Any:
    changes = {f"{UP}{name.replace('_', '-')}": value for name, value in labels.items()}
    body = {"metadata": {"labels": changes}}
    return await api.call("PATCH", TEAM, body, content_type=MERGE)


def pod(name: str = "p", *, bad: bool = False, **spec: Any) -> dict[str, Any]:
    """One that every level allows, or a privileged one."""
    document = copy.deepcopy(MINIMAL)
    document["metadata"] = {"name": name}
    document["spec"] |= spec
    if bad:
        document["spec"]["containers"][0]["securityContext"] |= {
            "privileged": True,
            "allowPrivilegeEscalation": True,
        }
    return document


async def post(api: Api, body: Any, path: str = PODS) -> Any:
    return await api.call("POST", path, body)


def warnings(answer: Any) -> list[str]:
    return [text[len('299 - "') : -1] for text in answer.headers.getall("Warning", [])]


async def metrics(api: Api) -> list[str]:
    page = (await api.call("GET", "/metrics")).text
    return [line for line in page.splitlines() if line.startswith("pod_security_")]


async def test_a_pod_is_refused_in_the_words_of_the_reference(api: Api) -> None:
    await make_team(api, enforce="restricted")
    assert (await post(api, pod("good"))).status == 201
    body = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "a"}]}}
    answer = await post(api, body)
    assert answer.status == 403
    assert answer.json["reason"] == "Forbidden"
    assert answer.json["details"] == {"name": "p", "kind": "pods"}
    assert answer.json["message"] == (
        'pods "p" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation'
        ' != false (container "c" must set securityContext.allowPrivilegeEscalation=false),'
        ' unrestricted capabilities (container "c" must set securityContext.capabilities.drop='
        '["ALL"]), runAsNonRoot != true (pod or container "c" must set'
        ' securityContext.runAsNonRoot=true), seccompProfile (pod or container "c" must set'
        ' securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")'
    )
    assert (await api.call("GET", f"{PODS}/p")).status == 404


@pytest.mark.parametrize("prefix", [UP, OWN])
async def test_labels_count_under_both_names_and_stay_as_written(api: Api, prefix: str) -> None:
    labels = {f"{prefix}enforce": "baseline", f"{prefix}enforce-version": "v1.20"}
    answer = await post(api, {"metadata": {"name": "team", "labels": labels}}, NAMESPACES)
    assert answer.json["metadata"]["labels"] == labels
    refused = await post(api, pod(bad=True))
    assert 'violates PodSecurity "baseline:v1.20": privileged' in refused.json["message"]


async def test_without_labels_everything_is_allowed(api: Api) -> None:
    await make_team(api)
    answer = await post(api, pod(bad=True, hostNetwork=True))
    assert (answer.status, warnings(answer)) == (201, [])


async def test_a_warning_comes_with_the_answer(api: Api) -> None:
    await make_team(api, warn="restricted", warn_version="v1.20")
    answer = await post(api, pod(bad=True))
    assert answer.status == 201
    (text,) = warnings(answer)
    assert text.replace("\\", "") == f'would violate PodSecurity "restricted:v1.20": {PRIVILEGED}'
    assert warnings(await post(api, pod("good"))) == []


async def test_a_refused_pod_is_not_warned_of_as_well(api: Api) -> None:
    await make_team(api, enforce="baseline", warn="restricted")
    answer = await post(api, pod(bad=True))
    assert (answer.status, warnings(answer)) == (403, [])


async def test_only_updates_that_change_what_is_judged_are_judged(api: Api) -> None:
    """A pod from before the policy can still be labelled, reported on, bound and ended."""
    await make_team(api)
    await post(api, pod(bad=True))
    await label(api, enforce="restricted")
    at = f"{PODS}/p"
    toleration = {"key": "a", "operator": "Exists"}
    for change in (
        {"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}}},
        {"spec": {"activeDeadlineSeconds": 60}},
    ):
        answer = await api.call("PATCH", at, change, content_type=MERGE)
        assert answer.status == 200, answer.text
    document = (await api.call("GET", at)).json
    document["spec"]["tolerations"].append(toleration)
    assert (await api.call("PUT", at, document)).status == 200
    status = {"status": {"phase": "Running"}}
    assert (await api.call("PATCH", f"{at}/status", status, content_type=MERGE)).status == 200
    binding = {"target": {"name": "n1"}, "metadata": {"name": "p"}}
    assert (await post(api, binding, f"{at}/binding")).status == 201
    document = (await api.call("GET", at)).json
    document["spec"]["containers"][0]["image"] = "other"
    refused = await api.call("PUT", at, document)
    assert (refused.status, PRIVILEGED in refused.json["message"]) == (403, True)
    assert (await api.call("DELETE", at)).status == 200


@pytest.mark.parametrize(
    ("key", "status", "text"),
    [
        ("container.apparmor.security.beta.kubernetes.io/c", 422, "may not add AppArmor"),
        ("seccomp.security.alpha.kubernetes.io/pod", 403, "unconfined"),
    ],
)
async def test_annotations_that_choose_a_profile_are_judged_when_they_change(
    api: Api, key: str, status: int, text: str
) -> None:
    """AppArmor's cannot change at all, whatever the level."""
    await make_team(api, enforce="baseline", enforce_version="v1.18")
    await post(api, pod())
    change = {"metadata": {"annotations": {key: "unconfined"}}}
    refused = await api.call("PATCH", f"{PODS}/p", change, content_type=MERGE)
    assert (refused.status, text in refused.json["message"]) == (status, True)


async def test_an_ephemeral_container_is_judged(api: Api) -> None:
    await make_team(api, enforce="baseline")
    await post(api, pod())
    at = f"{PODS}/p/ephemeralcontainers"
    document = (await api.call("GET", at)).json
    debugger = {"name": "d", "image": "a", "securityContext": {"privileged": True}}
    document["spec"]["ephemeralContainers"] = [debugger]
    refused = await api.call("PUT", at, document)
    assert refused.status == 403
    assert 'container "d" must not set securityContext.privileged' in refused.json["message"]
    del debugger["securityContext"]
    assert (await api.call("PUT", at, document)).status == 200


async def test_a_mirror_pod_is_judged_as_every_other(api: Api) -> None:
    """As in the reference: the node then runs its static pod without showing it."""
    await make_team(api, enforce="baseline")
    made = await api.call("POST", "/api/v1/nodes", node("n1"))
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "controller": True}
    owner["uid"] = made.json["metadata"]["uid"]
    for name, bad, status in (("good", False, 201), ("bad", True, 403)):
        mirror = pod(name, bad=bad, nodeName="n1")
        mirror["metadata"]["annotations"] = {ANNOTATION_CONFIG_MIRROR: "hash"}
        mirror["metadata"]["ownerReferences"] = [owner]
        answer = await api.call("POST", PODS, mirror, user="n1")
        assert answer.status == status, answer.text


@pytest.mark.parametrize("prefix", [UP, OWN])
async def test_a_namespace_with_labels_that_mean_nothing_is_refused(api: Api, prefix: str) -> None:
    labels = {f"{prefix}enforce": "strict", f"{prefix}warn-version": "1.2"}
    refused = await post(api, {"metadata": {"name": "team", "labels": labels}}, NAMESPACES)
    assert refused.status == 422
    assert refused.json["message"] == (
        f'Namespace "team" is invalid: [metadata.labels[{prefix}enforce]: Invalid value: "strict":'
        " must be one of privileged, baseline, restricted,"
        f' metadata.labels[{prefix}warn-version]: Invalid value: "1.2": must be "latest" or "v1.x"]'
    )
    await make_team(api)
    change = {"metadata": {"labels": labels}}
    assert (await api.call("PATCH", TEAM, change, content_type=MERGE)).status == 422


async def test_a_tightened_namespace_names_the_pods_that_violate_it(api: Api) -> None:
    await make_team(api)
    for name in ("b", "a", "c"):
        await post(api, pod(name, bad=True))
    await post(api, pod("net", hostNetwork=True))
    await post(api, pod("good"))
    answer = await label(api, enforce="baseline")
    assert answer.status == 200
    assert [text.replace("\\", "") for text in warnings(answer)] == [
        'existing pods in namespace "team" violate the new PodSecurity enforce level'
        ' "baseline:latest"',
        "a (and 2 other pods): privileged",
        "net: host namespaces",
    ]
    assert warnings(await label(api, enforce="baseline", warn="baseline")) == []
    assert warnings(await label(api, enforce="privileged")) == []
    assert len(warnings(await label(api, enforce="restricted", enforce_version="v1.30"))) == 3
    assert warnings(await label(api, enforce="baseline")) == []
    assert len(warnings(await label(api, enforce_version="v1.29"))) == 3


async def test_a_dry_run_is_judged_too(api: Api) -> None:
    await make_team(api, enforce="baseline")
    assert (await post(api, pod(bad=True), f"{PODS}?dryRun=All")).status == 403
    await post(api, pod())
    change = {"metadata": {"labels": {f"{UP}enforce": "restricted"}}}
    body = pod("q")
    body["spec"]["securityContext"] = {}
    assert (await post(api, body)).status == 201
    answer = await api.call("PATCH", f"{TEAM}?dryRun=All", change, content_type=MERGE)
    assert [text.rpartition(": ")[0] for text in warnings(answer)][1:] == ["q"]
    assert (await post(api, {**body, "metadata": {"name": "r"}})).status == 201


async def test_a_namespace_that_does_not_exist_is_not_found(api: Api) -> None:
    assert (await post(api, pod(bad=True))).status == 404


CLASSES = "/apis/node.orch.io/v1/runtimeclasses"
CONFIGURATION = """
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: baseline, enforce-version: v1.30, audit: restricted}
    exemptions:
      usernames: ["system:node:n2"]
      namespaces: [free]
      runtimeClasses: [vm]
"""
POLICY = "{apiVersion: audit.orch.io/v1, kind: Policy, rules: [{level: Metadata}]}"


@pytest.fixture
async def strict(server_pki: Pki, tmp_path: Path) -> AsyncIterator[Api]:
    """A server with defaults, exemptions and an audit log."""
    (tmp_path / "admission.yaml").write_text(CONFIGURATION)
    (tmp_path / "audit.yaml").write_text(POLICY)
    api = await Api.start(
        server_pki, tmp_path / "data",
        f"--admission-control-config-file={tmp_path / 'admission.yaml'}",
        f"--audit-policy-file={tmp_path / 'audit.yaml'}", f"--audit-log-path={tmp_path / 'log'}",
    )  # fmt: skip
    yield api
    await api.stop()


def recorded(directory: Path) -> list[dict[str, str]]:
    """The annotations of pod security in the audit log, without their prefix."""
    events = map(json.loads, (directory / "log").read_text().splitlines())
    return [
        found
        for event in events
        if event["stage"] == "ResponseComplete"
        and (found := {
            key.removeprefix(UP): text
            for key, text in event.get("annotations", {}).items() if key.startswith(UP)
        })
    ]  # fmt: skip


async def test_the_servers_defaults_hold_where_labels_say_nothing(
    strict: Api, tmp_path: Path
) -> None:
    await make_team(strict)
    refused = await post(strict, pod("bad", bad=True))
    assert 'violates PodSecurity "baseline:v1.30": privileged' in refused.json["message"]
    root = pod("root")
    del root["spec"]["securityContext"]["runAsNonRoot"]
    assert (await post(strict, root)).status == 201
    await label(strict, enforce="privileged", audit="privileged")
    assert (await post(strict, pod("bad", bad=True))).status == 201
    await strict.server.close()
    first, second, third = recorded(tmp_path)
    assert first["enforce-policy"] == second["enforce-policy"] == "baseline:v1.30"
    assert (
        first["audit-violations"] == f'would violate PodSecurity "restricted:latest": {PRIVILEGED}'
    )
    assert "runAsNonRoot != true" in second["audit-violations"]
    assert third == {"enforce-policy": "privileged:latest"}


async def test_the_exempt_are_not_judged(strict: Api, tmp_path: Path) -> None:
    await make_team(strict)
    labels = {f"{UP}enforce": "restricted", f"{UP}audit": "privileged"}
    free = await post(strict, {"metadata": {"name": "free", "labels": labels}}, NAMESPACES)
    assert [text.replace("\\", "") for text in warnings(free)] == [
        'namespace "free" is exempt from Pod Security, and the policy (enforce=restricted:v1.30)'
        " will be ignored"
    ]
    assert (await post(strict, pod(bad=True), f"{NAMESPACES}/free/pods")).status == 201
    vm_class = {"metadata": {"name": "vm"}, "handler": "vm"}
    assert (await post(strict, vm_class, CLASSES)).status == 201
    vm = pod("vm", bad=True, runtimeClassName="vm")
    assert (await post(strict, vm)).status == 201
    tightened = await label(strict, enforce="restricted")
    assert (tightened.status, warnings(tightened)) == (200, [])
    asked = 'request_operation="create",resource="pod",subresource=""'
    assert await metrics(strict) == [f"pod_security_exemptions_total{{{asked}}} 2.0"]
    await strict.server.close()
    assert recorded(tmp_path) == [{"exempt": "namespace"}, {"exempt": "runtimeClass"}]


async def test_evaluations_are_counted_by_what_was_decided(api: Api) -> None:
    await make_team(api, enforce="baseline", enforce_version="v1.99", warn="restricted")
    await post(api, pod("bad", bad=True))
    await post(api, CASES["root by default"].made())
    labels = 'request_operation="create",resource="pod",subresource=""'

    def line(decision: str, level: str, version: str, mode: str) -> str:
        return (
            f'pod_security_evaluations_total{{decision="{decision}",mode="{mode}",'
            f'policy_level="{level}",policy_version="{version}",{labels}}} 1.0'
        )

    assert sorted(await metrics(api)) == sorted(
        (
            line("allow", "baseline", "future", "enforce"),
            line("deny", "baseline", "future", "enforce"),
            line("deny", "restricted", "latest", "warn"),
        )
    )
