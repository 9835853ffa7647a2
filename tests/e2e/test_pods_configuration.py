"""ConfigMaps and Secrets for real containers, as an unmodified kubectl makes and changes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.conftest_runtime import RealRuntime
from tests.e2e.harness import RUNTIME_BASE, LocalCluster, eventually
from tests.fakes.registry import Registry

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


def pulling(cluster: LocalCluster, name: str, image: str, account: str) -> dict[str, Any]:
    command = ["/busybox", "sleep", "1000"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": cluster.node,
            "serviceAccountName": account,
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": image, "command": command}],
        },
    }


def waiting(cluster: LocalCluster, name: str) -> dict[str, str]:
    statuses = cluster.pod(name)["status"].get("containerStatuses") or [{"state": {}}]
    found: dict[str, str] = statuses[0]["state"].get("waiting", {})
    return found


def test_an_image_behind_a_password_is_pulled_with_the_secrets_of_the_pod_s_account(
    cluster: LocalCluster, real_runtime: RealRuntime, tmp_path: Path
) -> None:
    busybox = RUNTIME_BASE / "root" / "usr" / "bin" / "busybox"
    pod = tmp_path / "pod.json"
    with Registry("team/app", busybox, "s3cret").serving() as registry:
        registry.tell(real_runtime)
        cluster.kubectl("create", "serviceaccount", "puller")
        pod.write_text(json.dumps(pulling(cluster, "stranger", registry.image, "puller")))
        cluster.kubectl("create", "-f", str(pod))
        eventually(
            lambda: "authorization failed" in waiting(cluster, "stranger").get("message", ""),
            within_s=30,
            what="the registry refuses those without a password",
        )
        for name, password in (("old", "0ld"), ("new", "s3cret")):
            login = (f"--docker-username={name}", f"--docker-password={password}")
            server = f"--docker-server={registry.address}"
            cluster.kubectl("create", "secret", "docker-registry", name, server, *login)
        secrets = [{"name": name} for name in ("gone", "old", "new")]
        change = json.dumps({"imagePullSecrets": secrets})
        cluster.kubectl("patch", "serviceaccount", "puller", "-p", change)
        pod.write_text(json.dumps(pulling(cluster, "known", registry.image, "puller")))
        cluster.kubectl("create", "-f", str(pod))
        cluster.kubectl("wait", "--for=condition=Ready", "pod/known", "--timeout=30s")
    assert cluster.pod("known")["spec"]["imagePullSecrets"] == secrets
    assert {"", "old"} <= set(registry.refused)
    assert set(registry.served) == {"new"}
    told = "involvedObject.name=known,reason=FailedToRetrieveImagePullSecret"
    message = "-ojsonpath={.items[*].message}"
    assert "(gone)" in cluster.kubectl("get", "events", f"--field-selector={told}", message).stdout
    assert "s3cret" not in cluster.log("nodeagent")
    cluster.kubectl("delete", "pod", "known", "stranger", "--timeout=30s")
