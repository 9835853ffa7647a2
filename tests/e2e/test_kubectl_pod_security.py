"""Every unmodified kubectl tells its user what pod security refuses, and what it warns of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.apiserver import ApiServer, Kubectl, kubectls, running

PRIVILEGED = """
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec: {containers: [{name: c, image: a, securityContext: {privileged: true}}]}
"""
WHY = 'privileged (container "c" must not set securityContext.privileged=true)'

pytestmark = pytest.mark.skipif(not kubectls(), reason="kubectl is not installed")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with running(tmp_path_factory.mktemp("apiserver")) as server:
        yield server


@pytest.mark.parametrize("binary", kubectls(), ids=lambda path: Path(path).name)
def test_kubectl_shows_warnings_and_refusals(
    server: ApiServer, binary: str, tmp_path: Path
) -> None:
    kubectl = Kubectl(binary, server.directory / "kubeconfig", tmp_path)
    name = f"team-{kubectls().index(binary)}"
    kubectl("create", "namespace", name)

    def create(pod: str, code: int = 0) -> str:
        text = PRIVILEGED.replace("NAME", pod)
        return kubectl.run("-n", name, "create", "-f", "-", stdin=text, code=code).stderr

    def label(*labels: str, code: int = 0) -> str:
        prefixed = (f"pod-security.kubernetes.io/{one}" for one in labels)
        return kubectl.run("label", "--overwrite", "ns", name, *prefixed, code=code).stderr

    assert create("silent") == ""
    assert label("warn=baseline") == ""
    assert create("warned") == f'Warning: would violate PodSecurity "baseline:latest": {WHY}\n'
    assert label("enforce=baseline").splitlines() == [
        f'Warning: existing pods in namespace "{name}" violate the new PodSecurity enforce level'
        ' "baseline:latest"',
        "Warning: silent (and 1 other pod): privileged",
    ]
    refused = create("refused", code=1)
    assert 'pods "refused" is forbidden: violates PodSecurity "baseline:latest": ' in refused
    assert 'Error from server (Forbidden): error when creating "STDIN": ' in refused
    assert WHY in refused
    assert "must be one of privileged, baseline, restricted" in label("enforce=strict", code=1)
