"""ConfigMaps and Secrets in real containers, as an unmodified kubectl makes and changes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e.harness import LocalCluster, eventually

SCRIPT = """
echo "$COLOR $PASSWORD $S_user" > /told/env
cat /config/color /config/nested/size /secret/password > /told/files
stat -L -c '%a %g' /config/color /secret/password > /told/modes
touch /secret/x 2>> /told/refused; touch /config/x 2>> /told/refused
grep -c ' /secret .* tmpfs ' /proc/self/mountinfo > /told/memory
id -G > /told/groups; touch /own/file; stat -c %g /own/file >> /told/groups
while :; do cat /config/color > /told/next; mv /told/next /told/now; sleep 0.2; done
"""
ITEMS = [{"key": "color", "path": "color"}, {"key": "size", "path": "nested/size"}]


def key(kind: str, name: str, key: str, **more: Any) -> dict[str, Any]:
    return {f"{kind}KeyRef": {"name": name, "key": key, **more}}


def configured(node: str, told: Path) -> dict[str, Any]:
    container = {
        "name": "c",
        "image": "localhost/busybox:1",
        "command": ["sh", "-c", SCRIPT],
        "env": [
            {"name": "COLOR", "valueFrom": key("configMap", "settings", "color")},
            {"name": "PASSWORD", "valueFrom": key("secret", "keys", "password")},
            {"name": "NONE", "valueFrom": key("secret", "no", "k", optional=True)},
        ],
        "envFrom": [{"prefix": "S_", "secretRef": {"name": "keys"}}],
        "volumeMounts": [
            {"name": name, "mountPath": f"/{name}"} for name in ("told", "config", "secret", "own")
        ],
    }
    volumes = [
        {"name": "told", "hostPath": {"path": str(told)}},
        {"name": "config", "configMap": {"name": "settings", "items": ITEMS}},
        {"name": "secret", "secret": {"secretName": "keys", "defaultMode": 0o400}},
        {"name": "own", "emptyDir": {}},
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "configured"},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsUser": 1000, "fsGroup": 4321},
            "containers": [container],
            "volumes": volumes,
        },
    }


def test_a_pod_gets_its_configuration_and_follows_it(cluster: LocalCluster, tmp_path: Path) -> None:
    told = tmp_path / "told"
    told.mkdir()
    told.chmod(0o777)
    literals = ("--from-literal=color=red", "--from-literal=size=9")
    cluster.kubectl("create", "configmap", "settings", *literals)
    literals = ("--from-literal=password=p", "--from-literal=user=u")
    cluster.kubectl("create", "secret", "generic", "keys", *literals)
    (tmp_path / "pod.json").write_text(json.dumps(configured(cluster.node, told)))
    cluster.kubectl("create", "-f", str(tmp_path / "pod.json"))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/configured", "--timeout=30s")
    eventually((told / "now").exists, within_s=10, what="the container wrote what it sees")
    assert (told / "env").read_text() == "red p u\n"
    assert (told / "files").read_text() == "red9p"
    assert (told / "modes").read_text().split() == ["644", "4321", "440", "4321"]
    assert (told / "refused").read_text().count("Read-only file system") == 2
    assert (told / "memory").read_text().strip() == "1"
    groups, group_of_file = (told / "groups").read_text().splitlines()
    assert "4321" in groups.split()
    assert group_of_file == "4321"

    cluster.kubectl("patch", "configmap", "settings", "-p", '{"data": {"color": "blue"}}')
    cluster.kubectl("annotate", "pod", "configured", "looked=again")  # at once, not in a minute
    eventually(
        lambda: (told / "now").read_text() == "blue", within_s=20, what="the file follows the map"
    )
    uid = cluster.pod("configured")["metadata"]["uid"]
    cluster.kubectl("delete", "pod", "configured", "--timeout=30s")
    eventually(
        lambda: (
            not (cluster.run_dir / "nodeagent" / "pods" / uid).exists()
            and uid not in Path("/proc/self/mounts").read_text()
        ),
        within_s=20,
        what="its directory and mounts are gone",
    )
