"""Unmodified kubectl, oldest and newest, configures webhooks and tells what these refuse."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from orch.component.pki import Subject
from tests.e2e.apiserver import ApiServer, Kubectl, kubectls, running
from tests.fakes.webhook import ALLOW, FakeWebhook, Record, label, serving
from tests.orch.server.harness import Pki

pytestmark = pytest.mark.skipif(not kubectls(), reason="kubectl is not installed")
UPSTREAM = "admissionregistration.k8s.io/v1"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with running(tmp_path_factory.mktemp("apiserver"), "--serve-upstream-aliases") as server:
        yield server


def judged(request: Record) -> Record:
    if request["object"]["metadata"]["name"] == "bad":
        return {"allowed": False, "status": {"message": "the name is bad"}, "warnings": ["beware"]}
    return {**ALLOW, "warnings": ["looked at"]}


@pytest.mark.parametrize(
    "binary", [*kubectls()[:1], *kubectls()[-1:]], ids=lambda path: Path(path).name
)
async def test_kubectl_applies_webhooks(server: ApiServer, binary: str, tmp_path: Path) -> None:
    kubectl = Kubectl(binary, server.directory / "kubeconfig", tmp_path)
    pair = server.authority.issue(Subject("webhook", "webhook", (), ("127.0.0.1",)))
    hooks = FakeWebhook(Pki(server.ca_file, pair, {}))
    hooks.replies |= {"/label": lambda _: label("webhook"), "/judge": judged}
    async with serving(hooks.pki, hooks.answer) as hooks.port:
        await asyncio.to_thread(told, kubectl, hooks)


def told(kubectl: Kubectl, hooks: FakeWebhook) -> None:
    kinds = (("Mutating", "/label"), ("Validating", "/judge"))
    for number, (kind, path) in enumerate(kinds):
        rules = [{
            "operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["configmaps"],
        }]  # fmt: skip
        document = hooks.configuration(kind, "team", {"path": path, "rules": rules})
        if number:
            document["apiVersion"] = UPSTREAM
        text = json.dumps(document)
        plural = f"{kind.lower()}webhookconfigurations"
        made = kubectl("apply", "-f", "-", stdin=text)
        assert "team created" in made
        assert kubectl("get", f"{plural}", "team", "--no-headers").split()[:2] == ["team", "1"]
        server_side = ("apply", "--server-side", "--force-conflicts", "-f", "-")
        assert "serverside-applied" in kubectl(*server_side, stdin=text)
        assert "Name:" in kubectl("describe", plural, "team")

    text = json.dumps({"kind": "ConfigMap", "apiVersion": "v1",
                       "metadata": {"name": "good", "labels": {"a": "b"}}})  # fmt: skip
    dry = kubectl.run("apply", "--dry-run=server", "-f", "-", stdin=text)
    assert "good created (server dry run)" in dry.stdout
    applied = kubectl.run("apply", "-f", "-", stdin=text)
    assert applied.stderr == "Warning: looked at\n"
    assert "webhook=yes" in kubectl("get", "configmap", "good", "--show-labels")
    refused = kubectl.run("apply", "-f", "-", stdin=text.replace("good", "bad"), code=1)
    assert "Warning: beware" in refused.stderr
    words = 'admission webhook "judge.webhooks.example.com" denied the request: the name is bad'
    assert words in refused.stderr
    kubectl("delete", "configmap", "good")
    for kind, _ in kinds:
        kubectl("delete", f"{kind.lower()}webhookconfigurations", "team")
