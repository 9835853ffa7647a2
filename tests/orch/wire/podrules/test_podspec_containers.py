from __future__ import annotations

import pytest

from orch.wire.podrules import podspec
from orch.wire.records.pods import Pod

SPEC = {
    "containers": [{"name": "a"}, {"name": "b"}],
    "initContainers": [{"name": "i", "restartPolicy": "Always"}],
    "ephemeralContainers": [{"name": "e"}],
}
POD = Pod.from_wire({"spec": SPEC})
PLACES = [
    ("spec.initContainers[0]", "i"),
    ("spec.containers[0]", "a"),
    ("spec.containers[1]", "b"),
    ("spec.ephemeralContainers[0]", "e"),
]


def test_records_and_documents_have_the_same_places() -> None:
    assert [(place, one.name) for place, one in podspec.places(POD)] == PLACES
    assert [(place, one["name"]) for place, one in podspec.document_places(SPEC)] == PLACES
    assert [c.name for c in podspec.all_containers(POD)] == ["i", "a", "b", "e"]
    assert [one["name"] for _, one in podspec.document_places(SPEC, podspec.LASTING)] == [
        "i", "a", "b",
    ]  # fmt: skip
    assert list(podspec.document_places({"containers": None})) == []


def test_the_fields_of_a_document_are_its_own_and_its_containers() -> None:
    document = {"hostname": "h", "containers": [{"name": "a"}, {"env": []}]}
    assert podspec.document_fields(document) == {"hostname", "containers", "name", "env"}
    assert podspec.document_fields({}) == set()


@pytest.mark.parametrize(
    ("name", "kind", "sidecar"),
    [
        ("i", "init_container", True),
        ("a", "container", False),
        ("e", "ephemeral_container", False),
    ],
)
def test_a_container_is_found_with_its_kind(name: str, kind: str, sidecar: bool) -> None:
    found = podspec.find_container(POD, name)
    assert found is not None and found.name == name
    assert podspec.container_type(POD, name) == kind
    assert podspec.is_sidecar(found) is sidecar


def test_of_a_pod_that_is_not_known_containers_are_ordinary() -> None:
    assert podspec.find_container(POD, "none") is None
    assert podspec.container_type(None, "i") == "container"


@pytest.mark.parametrize(
    ("image", "given", "expected"),
    [  # K:pkg/apis/core/v1/defaults_test.go TestSetDefaultImagePullPolicy
        ("busybox", None, "Always"),
        ("busybox:latest", None, "Always"),
        ("busybox:1.36", "", "IfNotPresent"),
        ("registry:5000/busybox", None, "Always"),
        ("registry:5000/busybox:1.36", None, "IfNotPresent"),
        ("busybox@sha256:" + "a" * 64, None, "IfNotPresent"),
        ("busybox:latest@sha256:0123", None, "IfNotPresent"),
        ("busybox:latest", "Never", "Never"),
        ("busybox:1", "Always", "Always"),
    ],
)
def test_a_moving_tag_is_always_pulled(image: str, given: str | None, expected: str) -> None:
    assert podspec.pull_policy(image, given) == expected
