"""Fields of a manifest that do nothing are said, with file, line and field."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from nodeagent.pods.sources import manifests
from nodeagent.pods.sources.manifests import ManifestOrigin
from orch.component import yaml_file
from orch.wire.podrules import podspec
from tests.fakes.pods import container_data, pod

CASES: list[tuple[dict[str, Any], dict[str, Any], list[tuple[str, str]]]] = [
    ({}, {}, []),
    ({}, {"schedulerName": "own", "affinity": {"nodeAffinity": {}}}, []),
    (
        {"imagPullPolicy": "Never"},
        {},
        [("spec.containers[0].imagPullPolicy", "(did you mean imagePullPolicy?)")],
    ),
    (
        {"securityContext": {"privilegd": False}},
        {},
        [("spec.containers[0].securityContext.privilegd", "there is no such field")],
    ),
    ({}, {"resourceClaims": []}, [("spec.resourceClaims", "does not support it")]),
    ({}, {"volumes": [{"name": "v", "rbd": {}}]}, [("spec.volumes[0].rbd", "not support")]),
    ({}, {"metadata": {"lables": {}}}, [("metadata.lables", "did you mean labels?")]),
    ({"volumeMounts": [{"name": "v", "mountPath": "/v", "subPathExpr": "$(A)"}]}, {}, []),
]


@pytest.mark.parametrize(("container", "spec", "expected"), CASES)
def test_a_field_that_does_nothing_is_found(
    container: dict[str, Any], spec: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    found = manifests.unknown_fields(pod(container_data("app", **container), **spec))
    assert [yaml_file.show_path(path) for path, _ in found] == [path for path, _ in expected]
    for (_, message), (_, said) in zip(found, expected, strict=True):
        assert said in message


def test_it_is_told_with_its_line_and_the_pod_runs_all_the_same() -> None:
    text = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n"
        "  hostNetwrk: true\n  containers: [{name: a, image: x}]\n"
    )
    origin = ManifestOrigin(podspec.FILE, "/m/web.yaml", "node1", datetime(2026, 1, 31, tzinfo=UTC))
    made = manifests.static_pod(yaml_file.parse_yaml(text, source="/m/web.yaml"), origin)
    assert made.pod.metadata.name == "web-node1"
    assert made.ignored == (
        "/m/web.yaml:5: spec.hostNetwrk: there is no such field; it is ignored "
        "(did you mean hostNetwork?)",
    )
