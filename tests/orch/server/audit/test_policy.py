from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orch.component.process.daemon import SetupError
from orch.server.audit.policy import Level, Policy, read_policy
from orch.server.request.attributes import RequestInfo, parse_request
from orch.wire.records.authentication import Identity

# The reference's own example (its audit documentation), word for word but for comments.
EXAMPLE = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages:
  - "RequestReceived"
rules:
  - level: RequestResponse
    resources:
    - group: ""
      resources: ["pods"]
  - level: Metadata
    resources:
    - group: ""
      resources: ["pods/log", "pods/status"]
  - level: None
    resources:
    - group: ""
      resources: ["configmaps"]
      resourceNames: ["controller-leader"]
  - level: None
    users: ["system:kube-proxy"]
    verbs: ["watch"]
    resources:
    - group: ""
      resources: ["endpoints", "services"]
  - level: None
    userGroups: ["system:authenticated"]
    nonResourceURLs:
    - "/api*"
    - "/version"
  - level: Request
    resources:
    - group: ""
      resources: ["configmaps"]
    namespaces: ["kube-system"]
  - level: Metadata
    resources:
    - group: ""
      resources: ["secrets", "configmaps"]
  - level: Request
    resources:
    - group: ""
    - group: "extensions"
  - level: Metadata
    omitStages:
      - "RequestReceived"
"""
SOMEBODY = Identity("u", ("system:authenticated",))
DEFAULT = "/api/v1/namespaces/default"


def policy_of(*rules: dict[str, Any], **more: Any) -> Policy:
    record = {"apiVersion": "audit.orch.io/v1", "kind": "Policy", "rules": list(rules), **more}
    return Policy.model_validate(record)


def get(path: str, **query: str) -> RequestInfo:
    return parse_request("GET", path, query)


@pytest.mark.parametrize(
    ("who", "info", "level"),
    [
        (SOMEBODY, get(f"{DEFAULT}/pods/p"), Level.REQUEST_RESPONSE),
        (SOMEBODY, get(f"{DEFAULT}/pods/p/log"), Level.METADATA),
        (SOMEBODY, get(f"{DEFAULT}/pods/p/attach"), Level.REQUEST),
        (SOMEBODY, get(f"{DEFAULT}/configmaps/controller-leader"), Level.NONE),
        (SOMEBODY, get("/api/v1/namespaces/kube-system/configmaps/x"), Level.REQUEST),
        (SOMEBODY, get(f"{DEFAULT}/configmaps/x"), Level.METADATA),
        (Identity("system:kube-proxy"), get("/api/v1/services", watch="1"), Level.NONE),
        (Identity("system:kube-proxy"), get("/api/v1/services"), Level.REQUEST),
        (SOMEBODY, get("/api"), Level.NONE),
        (SOMEBODY, get("/apis"), Level.NONE),
        (SOMEBODY, get("/versions"), Level.METADATA),
        (None, get("/api"), Level.METADATA),
        (SOMEBODY, get("/api/v1/nodes"), Level.REQUEST),
        (SOMEBODY, get("/apis/apps/v1/deployments"), Level.METADATA),
    ],
)
def test_the_references_example_decides_as_there(who, info, level, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(EXAMPLE)
    found, omitted = read_policy(path).decide(who, info)
    assert found is level
    assert level is Level.NONE or "RequestReceived" in omitted


@pytest.mark.parametrize(
    ("wanted", "info", "matches"),
    [
        ("*", get(f"{DEFAULT}/pods/p/log"), True),
        ("pods/*", get(f"{DEFAULT}/pods/p/log"), True),
        ("pods/*", get(f"{DEFAULT}/pods/p"), False),
        ("*/log", get(f"{DEFAULT}/pods/p/log"), True),
        ("*/status", get(f"{DEFAULT}/pods/p/log"), False),
        ("pods", get(f"{DEFAULT}/pods/p/log"), False),
    ],
)
def test_resources_may_be_patterns(wanted: str, info: RequestInfo, matches: bool) -> None:
    rule = {"level": "Metadata", "resources": [{"group": "", "resources": [wanted]}]}
    assert (policy_of(rule).decide(SOMEBODY, info)[0] is Level.METADATA) == matches


LEASE = get("/apis/coordination.orch.io/v1/namespaces/orch-node-lease/leases/n1")


@pytest.mark.parametrize(
    ("wanted", "matches"),
    [
        ({"resources": [{"group": "coordination.k8s.io"}]}, True),
        ({"resources": [{"group": "coordination.orch.io", "resources": ["leases"]}]}, True),
        ({"resources": [{"group": "rbac.authorization.k8s.io"}]}, False),
        ({"namespaces": ["kube-node-lease"]}, True),
        ({"namespaces": ["orch-node-lease"]}, True),
        ({"namespaces": ["kube-system"]}, False),
    ],
)
def test_a_rule_may_name_groups_as_the_reference_does(
    wanted: dict[str, Any], matches: bool
) -> None:
    found, _ = policy_of({"level": "Metadata", **wanted}).decide(SOMEBODY, LEASE)
    assert (found is Level.METADATA) == matches


def test_stages_left_out_by_policy_and_rule_add_up() -> None:
    policy = policy_of(
        {"level": "Metadata", "omitStages": ["Panic"]}, omitStages=["ResponseStarted"]
    )
    assert policy.decide(SOMEBODY, get("/x"))[1] == {"Panic", "ResponseStarted"}


def test_what_no_rule_matches_is_not_written_down() -> None:
    assert policy_of().decide(SOMEBODY, get("/x"))[0] is Level.NONE
    nobody = policy_of({"level": "Metadata", "users": ["somebody else"]})
    assert nobody.decide(SOMEBODY, get("/x"))[0] is Level.NONE


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("kind: Policy", "apiVersion"),
        ("apiVersion: audit.orch.io/v2\nkind: Policy\nrules: []", "policy.yaml:1: apiVersion"),
        (EXAMPLE + "  - level: Some\n", "level"),
        (EXAMPLE + "  - level: None\n    user: [a]\n", "rules[9].user"),
        (EXAMPLE + "  - level: None\n    omitStages: [Never]\n", "omitStages"),
        (EXAMPLE + "  - level: None\n    namespaces: [a]\n    nonResourceURLs: [/x]\n", "both"),
        (EXAMPLE + "  - level: None\n    nonResourceURLs: ['/*/x']\n", "/*/x"),
        (EXAMPLE + "  - level: None\n    resources: [{resourceNames: [a]}]\n", "resourceNames"),
        ("rules: [", "policy.yaml:2"),
        ("[]", "the file"),
    ],
)
def test_a_wrong_policy_is_refused_and_the_place_named(
    text: str, named: str, tmp_path: Path
) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    with pytest.raises(SetupError) as caught:
        read_policy(path)
    assert named in str(caught.value)


def test_a_missing_policy_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="nothing-there"):
        read_policy(tmp_path / "nothing-there")
