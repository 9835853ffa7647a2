"""A pod speaks to the API server as its service account, as in-cluster clients do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import kubernetes
import pytest
from kubernetes.client.exceptions import ApiException
from kubernetes.config.incluster_config import InClusterConfigLoader

from tests.e2e.harness import LocalCluster, eventually

pytestmark = pytest.mark.seconds(15)

PLACE = "/var/run/secrets/kubernetes.io/serviceaccount"
SCRIPT = f"""
env | grep ^KUBERNETES > /told/env
stat -L -c '%a %u' {PLACE}/token > /told/mode
cat {PLACE}/namespace > /told/namespace
url=https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/api/v1/namespaces/default/pods/asking
until wget -q --no-check-certificate -O /told/got.part \
    --header "Authorization: Bearer $(cat {PLACE}/token)" $url 2> /told/problem; do sleep 0.2; done
mv /told/got.part /told/got
sleep 1000
"""


RIGHTS = {
    "apiVersion": "rbac.authorization.orch.io/v1",
    "kind": "RoleBinding",
    "metadata": {"name": "reader", "namespace": "default"},
    "roleRef": {"apiGroup": "rbac.authorization.orch.io", "kind": "ClusterRole", "name": "view"},
    "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
}


def asking(cluster: LocalCluster, told: Path) -> dict[str, Any]:
    container = {
        "name": "c",
        "image": "localhost/busybox:1",
        "command": ["sh", "-c", SCRIPT],
        "volumeMounts": [{"name": "told", "mountPath": "/told"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "asking"},
        "spec": {
            "nodeName": cluster.node,
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "securityContext": {"runAsUser": 1000},
            "volumes": [{"name": "told", "hostPath": {"path": str(told)}}],
        },
    }


def test_a_pod_reads_the_api_server_with_its_token(cluster: LocalCluster, tmp_path: Path) -> None:
    told = tmp_path / "told"
    told.mkdir()
    told.chmod(0o777)
    cluster.kubectl("create", "namespace", "new")
    plain = asking(cluster, told) | {"metadata": {"name": "first"}}
    (tmp_path / "pod.json").write_text(json.dumps(plain))
    cluster.kubectl("create", "-n", "new", "--dry-run=server", "-f", str(tmp_path / "pod.json"))
    (tmp_path / "rights.json").write_text(json.dumps(RIGHTS))
    cluster.kubectl("create", "-f", str(tmp_path / "rights.json"))
    (tmp_path / "pod.json").write_text(json.dumps(asking(cluster, told)))
    cluster.kubectl("create", "-f", str(tmp_path / "pod.json"))
    eventually((told / "got").exists, within_s=40, what="the container read the API with its token")
    stored = json.loads((told / "got").read_text())
    assert stored["metadata"]["name"] == "asking"
    assert (told / "mode").read_text().split() == ["600", "1000"]
    assert (told / "namespace").read_text() == "default"

    # The official client's own reading of what is in the pod.
    environment = dict(line.split("=", 1) for line in (told / "env").read_text().splitlines())
    uid = stored["metadata"]["uid"]
    [volume] = (cluster.run_dir / "nodeagent/pods" / uid / "volumes/projected").iterdir()
    configuration = kubernetes.client.Configuration()
    loader = InClusterConfigLoader(
        token_filename=str(volume / "token"),
        cert_filename=str(volume / "ca.crt"),
        environ=environment,
    )
    loader.load_and_set(configuration)
    with kubernetes.client.ApiClient(configuration) as connection:
        core = kubernetes.client.CoreV1Api(connection)
        assert core.read_namespaced_pod("asking", "default").metadata.uid == uid
        cluster.kubectl("delete", "pod", "asking", "--timeout=30s")
        with pytest.raises(ApiException, match="Unauthorized"):
            core.read_namespaced_pod("asking", "default")
        connection.rest_client.pool_manager.clear()
    cluster.kubectl("delete", "-f", str(tmp_path / "rights.json"))
    cluster.kubectl("delete", "namespace", "new", "--wait=false")
