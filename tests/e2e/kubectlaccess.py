"""Commands of kubectl that need the reference's group names, and those that are not offered."""

from __future__ import annotations

import base64
import json

from orch.component import signing_requests
from tests.e2e.harness import eventually
from tests.e2e.kubectlworld import BUSY, World


def review(w: World) -> None:
    asked = {"resourceAuthorizationAttributes": {"verb": "get", "resource": "pods"}}
    kind = {"apiVersion": "authorization.orch.io/v1", "kind": "SelfSubjectAccessReview"}
    body = json.dumps({**kind, "spec": asked})
    assert w("create", "-f", "-", "-o", "jsonpath={.status.allowed}", stdin=body) == "true"


def can_i(w: World) -> None:
    assert w("auth", "can-i", "delete", "leases") == "yes"
    assert w.run("auth", "can-i", "delete", "pods", "--as=nobody", code=1).stdout.strip() == "no"
    assert "*.*" in w("auth", "can-i", "--list")


def whoami(w: World) -> None:
    assert "system:masters" in w("auth", "whoami")


def roles(w: World) -> None:
    w("create", "role", "reader", "--verb=get,list", "--resource=pods,leases")
    w("create", "rolebinding", "readers", "--role=reader", "--user=jane")
    assert w("auth", "can-i", "list", "pods", "--as=jane") == "yes"
    assert w("auth", "can-i", "get", "leases", "--as=jane") == "yes"
    assert "jane" in w("get", "rolebinding", "readers", "-o", "wide")
    assert "pods" in w("describe", "role", "reader")
    w("delete", "rolebinding/readers", "role/reader")


def cluster_roles(w: World) -> None:
    name = f"{w.namespace}-nodes"
    w("create", "clusterrole", name, "--verb=get", "--resource=nodes")
    w("create", "clusterrolebinding", name, f"--clusterrole={name}", "--group=watchers")
    asked = ("auth", "can-i", "get", f"nodes/{w.node}", "--as=x", "--as-group=watchers")
    assert w.run(*asked).stdout.strip() == "yes"
    w.kubectl("delete", f"clusterrolebinding/{name}", f"clusterrole/{name}")


def certificates(w: World) -> None:
    pem = signing_requests.make_request(signing_requests.make_key(), "jane", "team", ())
    spec = {
        "request": base64.b64encode(pem).decode(), "usages": ["client auth"],
        "signerName": "kubernetes.io/kube-apiserver-client",
    }  # fmt: skip
    kind = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
    for verb, decided in (("approve", "Approved"), ("deny", "Denied")):
        name = f"{w.namespace}-{verb}"
        body = json.dumps({**kind, "metadata": {"name": name}, "spec": spec})
        w.kubectl("create", "-f", "-", stdin=body)
        w("certificate", verb, name)
        assert w.value(f"csr/{name}", ".status.conditions[*].type") == decided
        w.kubectl("delete", "csr", name)


def lease(w: World) -> None:
    body = {
        "apiVersion": "coordination.orch.io/v1", "kind": "Lease",
        "metadata": {"name": w.node, "namespace": "orch-node-lease"},
        "spec": {"holderIdentity": w.node, "leaseDurationSeconds": 40},
    }  # fmt: skip
    w.kubectl("create", "-f", "-", stdin=json.dumps(body))
    assert f"HolderIdentity:  {w.node}" in w("describe", "node", w.node)


def top_node(w: World) -> None:
    shown = eventually(lambda: w.run("top", "node", w.node).stdout, within_s=60, what="its usage")
    assert shown.splitlines()[1].split()[:2] == [w.node, "500m"]


def top_pod(w: World) -> None:
    shown = eventually(
        lambda: w.run("top", "pod", BUSY).stdout, within_s=60, what="the pod's usage"
    )
    assert shown.splitlines()[1].split() == [BUSY, "500m", "1Mi"]
    w.gone(BUSY)
