"""ConfigMaps and Secrets for real containers, as an unmodified kubectl makes and changes them."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest_runtime import RealRuntime
from tests.e2e.harness import RUNTIME_BASE, LocalCluster, eventually
from tests.fakes.registry import PASSWORD, docker_registry, tell

pytestmark = pytest.mark.seconds(20)

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


REFUSED = re.compile("authorization failed|401 Unauthorized")


def old_format(address: str, user: str, password: str) -> dict[str, Any]:
    """A Secret as clients before Docker 1.7 had their passwords."""
    login = base64.b64encode(f"{user}:{password}".encode()).decode()
    data = json.dumps({address: {"auth": login}})
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": user},
        "type": "kubernetes.io/dockercfg",
        "stringData": {".dockercfg": data},
    }


@pytest.mark.parametrize("known", ["new", "cfg"])
def test_an_image_behind_a_password_is_pulled_with_the_secrets_of_the_pod_s_account(
    cluster: LocalCluster, real_runtime: RealRuntime, tmp_path: Path, known: str
) -> None:
    """Of a real registry; `new` has its password in the one format, `cfg` in the other."""
    busybox = RUNTIME_BASE / "root" / "usr" / "bin" / "busybox"
    pod, names = tmp_path / "pod.json", (f"stranger-{known}", f"known-{known}")
    account, old = f"puller-{known}", f"old-{known}"
    users = ("pusher", known)
    with docker_registry(tmp_path / "registry", f"team/{known}", busybox, users) as address:
        tell(real_runtime, address)
        image = f"{address}/team/{known}:1"
        login = (f"--docker-username={known}", "--docker-password=0ld")
        server = f"--docker-server={address}"
        cluster.kubectl("create", "secret", "docker-registry", old, server, *login)
        cluster.kubectl("create", "serviceaccount", account)
        secrets = [{"name": old}]
        change = json.dumps({"imagePullSecrets": secrets})
        cluster.kubectl("patch", "serviceaccount", account, "-p", change)
        pod.write_text(json.dumps(pulling(cluster, names[0], image, account)))
        cluster.kubectl("create", "-f", str(pod))
        eventually(
            lambda: REFUSED.search(waiting(cluster, names[0]).get("message", "")),
            within_s=30,
            what="the registry refuses a wrong password",
        )
        said = f"involvedObject.name={names[0]},reason=Failed"
        message = "-ojsonpath={.items[*].message}"
        failed = cluster.kubectl("get", "events", f"--field-selector={said}", message).stdout
        assert f'Failed to pull image "{image}"' in failed and REFUSED.search(failed)
        if known == "cfg":
            pod.write_text(json.dumps(old_format(address, known, PASSWORD)))
            cluster.kubectl("create", "-f", str(pod))
        else:
            login = (f"--docker-username={known}", f"--docker-password={PASSWORD}")
            cluster.kubectl("create", "secret", "docker-registry", known, server, *login)
        secrets = [{"name": name} for name in ("gone", old, known)]
        change = json.dumps({"imagePullSecrets": secrets})
        cluster.kubectl("patch", "serviceaccount", account, "-p", change)
        pod.write_text(json.dumps(pulling(cluster, names[1], image, account)))
        cluster.kubectl("create", "-f", str(pod))
        cluster.kubectl("wait", "--for=condition=Ready", f"pod/{names[1]}", "--timeout=30s")
    assert cluster.pod(names[1])["spec"]["imagePullSecrets"] == secrets
    told = f"involvedObject.name={names[1]},reason=FailedToRetrieveImagePullSecret"
    assert "(gone)" in cluster.kubectl("get", "events", f"--field-selector={told}", message).stdout
    log = cluster.log("nodeagent")
    assert PASSWORD not in log and "0ld" not in log
    cluster.kubectl("delete", "pod", *names, "--timeout=30s")
