"""Manifests → static pods; defaults of the reference's config/common.go."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from nodeagent.pods.sources import manifests
from nodeagent.pods.sources.manifests import ManifestOrigin, PodFileError
from orch.component.yaml_file import parse_yaml
from orch.wire.podrules import podspec
from orch.wire.records.pods import Pod

SEEN = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
PLAIN = """
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: app
    image: localhost/busybox:1
"""


def read(text: str, node: str = "Node1", path: str = "/m/web.yaml") -> Pod:
    origin = ManifestOrigin(podspec.FILE, path, node, SEEN)
    return manifests.static_pod(parse_yaml(text, source=path), origin).pod


def test_a_static_pod_gets_the_defaults_of_its_node() -> None:
    made = read(PLAIN)
    assert made.key == "default/web-node1"
    assert made.spec.nodeName == "Node1"
    assert made.status.phase == "Pending"
    [toleration] = made.spec.tolerations or []
    assert (toleration.operator, toleration.effect) == ("Exists", "NoExecute")
    assert made.metadata.annotations == {
        "orch.io/config.source": "file",
        "orch.io/config.seen": "2026-01-31T12:00:00Z",
        "orch.io/config.hash": made.metadata.uid,
    }
    assert podspec.is_static(made)


def test_the_uid_follows_content_node_and_path_only() -> None:
    same = read(PLAIN + "\n# a remark\n")
    assert read(PLAIN).metadata.uid == same.metadata.uid
    others = {
        read(PLAIN, node="node2").metadata.uid,
        read(PLAIN, path="/m/other.yaml").metadata.uid,
        read(PLAIN.replace("busybox:1", "busybox:2")).metadata.uid,
        read(PLAIN).metadata.uid,
    }
    assert len(others) == 4


def test_a_given_uid_and_namespace_are_kept() -> None:
    made = read(PLAIN.replace("name: web", "name: web\n  uid: my-uid\n  namespace: shop"))
    assert made.metadata.uid == "my-uid"
    assert made.key == "shop/web-node1"


def test_json_is_read_as_well() -> None:
    text = (
        '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},'
        ' "spec": {"containers": [{"name": "app", "image": "x"}]}}'
    )
    assert read(text).key == "default/web-node1"


BAD = [
    ("", "/m/web.yaml: a pod is expected, not an empty file"),
    ("- 1", "/m/web.yaml: a pod is expected, not a list"),
    (PLAIN.replace("kind: Pod", "kind: PodList"), "kind 'PodList' are not v1 and Pod"),
    (PLAIN.replace("name: web", "labels: {}"), "invalid pod: name is needed for the pod"),
    (
        PLAIN.replace("name: app", "name: App"),
        '/m/web.yaml:8: spec.containers[0].name: Invalid value: "App"',
    ),
    (
        PLAIN.replace("image: localhost/busybox:1", "command: [a]"),
        "spec.containers[0].image: Required",
    ),
    (
        PLAIN.replace("image: localhost/busybox:1", "image: 5"),
        "/m/web.yaml:9: spec.containers[0].image: Input should be a valid string",
    ),
    (
        PLAIN + "    resources: {limits: {cpu: many}}\n",
        "resources.limits.cpu: Invalid value: \"many\": 'many' is not a quantity",
    ),
    (
        PLAIN + "    volumeMounts: [{name: v, mountPath: /v}]\n",
        'volumeMounts[0].name: Not found: "v"',
    ),
    (
        PLAIN + "    ports: [{containerPort: 0}]\n",
        "containerPort: Required value",
    ),
    (PLAIN + "  restartPolicy: Sometimes\n", "spec.restartPolicy: Input should be 'Always'"),
    (PLAIN.replace("name: web", "name: web\n  uid: ../../etc"), "'../../etc' is not a uid"),
    (PLAIN.replace("name: web", "name: web\n  namespace: a/b"), "metadata.namespace: 'a/b'"),
    (
        PLAIN + "    env: [{name: A, valueFrom: {configMapKeyRef: {name: c, key: k}}}]\n",
        "/m/web.yaml:10: spec.containers[0].env[0].valueFrom: a static pod cannot refer",
    ),
    (
        PLAIN + "    resources:\n      limits:\n        example.com/gpu: -1\n",
        "/m/web.yaml:12: spec.containers[0].resources.limits.example.com/gpu: Invalid value",
    ),
    (PLAIN + "  - {name: app, image: x}\n", 'spec.containers[1].name: Duplicate value: "app"'),
]


@pytest.mark.parametrize(("text", "problem"), BAD)
def test_what_is_wrong_is_said_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(PodFileError) as caught:
        read(text)
    assert problem in str(caught.value)
