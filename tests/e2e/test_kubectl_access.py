"""Access control met with an unmodified kubectl: roles from a file, refusals, every credential."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from orch.server.authn.credential_files import hash_password
from tests.e2e.apiserver import ApiServer, Kubectl, kubectls, running

GROUP = "rbac.authorization.orch.io"
ROLES = f"""
apiVersion: {GROUP}/v1
kind: Role
metadata: {{name: pod-reader, namespace: default}}
rules:
- {{apiGroups: [""], resources: [pods], verbs: [get, list]}}
---
apiVersion: {GROUP}/v1
kind: RoleBinding
metadata: {{name: ann-reads, namespace: default}}
roleRef: {{apiGroup: {GROUP}, kind: Role, name: pod-reader}}
subjects:
- {{kind: User, name: ann}}
- {{kind: ServiceAccount, name: bot}}
"""
CLUSTER_ROLE = f"""
apiVersion: {GROUP}/v1
kind: ClusterRole
metadata: {{name: node-reader}}
rules:
- {{apiGroups: [""], resources: [nodes], verbs: [get, list]}}
"""

pytestmark = pytest.mark.skipif(not kubectls(), reason="kubectl is not installed")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    directory = tmp_path_factory.mktemp("access")
    passwords, tokens = directory / "basic.csv", directory / "tokens.csv"
    passwords.write_text(f"{hash_password('hunter2')},ann,1\n")
    tokens.write_text("ann-token,ann,1\n")
    with running(
        directory,
        f"--basic-auth-file={passwords}",
        f"--token-auth-file={tokens}",
        f"--service-account-signing-key-file={directory / 'pki' / 'server.key'}",
    ) as server:
        Kubectl(kubectls()[0], directory / "kubeconfig", directory)("apply", "-f", "-", stdin=ROLES)
        yield server


@pytest.fixture
def kubectl(server: ApiServer, tmp_path: Path) -> Kubectl:
    return Kubectl(kubectls()[0], server.directory / "kubeconfig", tmp_path)


@pytest.fixture(params=kubectls(), ids=lambda path: Path(path).name)
def any_kubectl(request: pytest.FixtureRequest, server: ApiServer, tmp_path: Path) -> Kubectl:
    return Kubectl(request.param, server.directory / "kubeconfig", tmp_path)


def as_nobody(server: ApiServer, kubectl: Kubectl, directory: Path) -> Kubectl:
    """The same client without the administrator's certificate."""
    record = json.loads((server.directory / "kubeconfig").read_text())
    record["users"][0]["user"] = {}
    path = directory / "kubeconfig"
    path.write_text(json.dumps(record))
    return Kubectl(kubectl.binary, path, directory)


def test_a_role_from_a_file_lets_its_subject_in_and_no_further(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=ROLES)
    assert "Role/pod-reader" in kubectl("get", f"rolebindings.{GROUP}", "ann-reads")
    assert "No resources found" in kubectl.run("get", "pods", "--as=ann").stderr
    refused = kubectl.run("get", "nodes", "--as=ann", code=1)
    assert refused.stderr.strip() == (
        'Error from server (Forbidden): nodes is forbidden: User "ann" cannot list resource'
        ' "nodes" in API group "" at the cluster scope'
    )
    elsewhere = kubectl.run("delete", "pod", "p", "-n", "orch-system", "--as=ann", code=1)
    assert (
        'pods "p" is forbidden: User "ann" cannot delete resource "pods" in API group ""'
        ' in the namespace "orch-system"'
    ) in elsewhere.stderr


def test_cluster_roles_are_created_patched_and_deleted(kubectl: Kubectl) -> None:
    name = f"clusterrole.{GROUP}/node-reader"
    kubectl("create", "-f", "-", stdin=CLUSTER_ROLE)
    patch = '[{"op": "add", "path": "/rules/0/verbs/-", "value": "watch"}]'
    kubectl("patch", name, "--type=json", "-p", patch)
    verbs = kubectl("get", name, "-o", "jsonpath={.rules[0].verbs}")
    assert json.loads(verbs) == ["get", "list", "watch"]
    kubectl("delete", name)


def test_nobody_grants_what_they_do_not_hold(kubectl: Kubectl) -> None:
    refused = kubectl.run("create", "-f", "-", "--as=ann", code=1, stdin=CLUSTER_ROLE)
    assert "cannot create resource" in refused.stderr


def test_the_role_of_a_binding_cannot_be_changed(kubectl: Kubectl) -> None:
    changed = ROLES.partition("---")[2].replace("kind: Role,", "kind: ClusterRole,")
    assert changed != ROLES.partition("---")[2]
    refused = kubectl.run("apply", "-f", "-", code=1, stdin=changed)
    assert "cannot change roleRef" in refused.stderr


def test_every_credential_is_known_and_a_wrong_one_refused(
    server: ApiServer, any_kubectl: Kubectl, tmp_path: Path
) -> None:
    kubectl = any_kubectl
    run = as_nobody(server, kubectl, tmp_path)
    account = f"bot-{Path(kubectl.binary).name.replace('.', '-')}"
    kubectl("create", "serviceaccount", account)
    token = kubectl("create", "token", account, "--duration=10m").strip()
    assert token.count(".") == 2
    whoami = ("get", "nodes")
    for credentials, user in (
        (("--token=ann-token",), "ann"),
        (("--username=ann", "--password=hunter2"), "ann"),
        ((f"--token={token}",), f"system:serviceaccount:default:{account}"),
    ):
        assert f'User "{user}" cannot list' in run.run(*whoami, *credentials, code=1).stderr
    for wrong in ("--token=wrong", f"--token={token}x"):
        assert "must be logged in" in run.run(*whoami, wrong, code=1).stderr
