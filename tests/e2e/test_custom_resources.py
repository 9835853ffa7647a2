"""Kinds that users define, by clients that know nothing of this server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes
import lightkube
import pytest
from lightkube.generic_resource import create_namespaced_resource
from lightkube.types import PatchType

from tests.e2e.apiserver import ApiServer, Kubectl, oldest_and_newest_kubectl, running
from tests.e2e.harness import eventually
from tests.orch.ctl.conftest import run_command

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("custom-resources")]

NAME = "crontabs.stable.example.com"
TEXT = {"type": "string"}
STEP = {"type": "object", "required": ["name"], "properties": {"name": TEXT, "run": TEXT}}
SPEC: dict[str, Any] = {
    "type": "object",
    "description": "What to run, and when.",
    "properties": {
        "cronSpec": {
            **TEXT,
            "pattern": r"^(\d+|\*)(/\d+)?(\s+(\d+|\*)(/\d+)?){4}$",
            "description": "When it runs.",
        },
        "replicas": {"type": "integer", "minimum": 1, "maximum": 10, "default": 1},
        "steps": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": STEP,
        },
    },
}
STATUS = {"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": TEXT}}
VERSION = {
    "name": "v1",
    "served": True,
    "storage": True,
    "schema": {
        "openAPIV3Schema": {"type": "object", "properties": {"spec": SPEC, "status": STATUS}}
    },
    "additionalPrinterColumns": [
        {"name": "Spec", "type": "string", "jsonPath": ".spec.cronSpec"},
        {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ],
    "subresources": {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    },
}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": NAME},
    "spec": {
        "group": "stable.example.com",
        "scope": "Namespaced",
        "names": {
            "plural": "crontabs", "kind": "CronTab", "shortNames": ["ct"], "categories": ["all"],
        },
        "versions": [VERSION],
    },
}  # fmt: skip


def crontab(name: str, when: str = "* * * * */5", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "stable.example.com/v1",
        "kind": "CronTab",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"cronSpec": when, **spec},
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with running(tmp_path_factory.mktemp("custom"), "--serve-upstream-aliases") as server:
        yield server


@pytest.fixture(
    scope="module", params=oldest_and_newest_kubectl(), ids=lambda path: Path(path).name
)
def kubectl(server: ApiServer, request: pytest.FixtureRequest) -> Kubectl:
    cache = server.directory / f"cache-{Path(request.param).name}"
    kubectl = Kubectl(request.param, server.directory / "kubeconfig", cache)
    kubectl("apply", "-f", "-", stdin=json.dumps(DEFINITION))
    kubectl("wait", "--for=condition=Established", f"crd/{NAME}", "--timeout=20s")
    return kubectl


def apply(kubectl: Kubectl, document: dict[str, Any], *more: str, code: int = 0) -> str:
    done = kubectl.run("apply", *more, "-f", "-", stdin=json.dumps(document), code=code)
    return done.stdout + done.stderr


def test_kubectl_applies_shows_and_scales_objects_of_a_defined_kind(kubectl: Kubectl) -> None:
    assert "created" in apply(kubectl, crontab("mine", steps=[{"name": "a"}]))
    assert "configured" in apply(kubectl, crontab("mine", "* * * * *", steps=[{"name": "a"}]))
    refused = apply(kubectl, crontab("mine", "never"), code=1)
    assert "spec.cronSpec: Invalid value" in refused
    assert 'unknown field "spec.odd"' in apply(kubectl, crontab("mine", odd=1), code=1)
    lines = kubectl("get", "ct").splitlines()
    assert lines[0].split() == ["NAME", "SPEC", "REPLICAS", "AGE"]
    assert lines[1].split()[:7] == ["mine", *"*****", "1"]
    assert "crontab.stable.example.com/mine" in kubectl("get", "all", "-o", "name")
    explained = kubectl("explain", "crontab.spec.cronSpec")
    assert "When it runs." in explained
    refused = kubectl.run("patch", "ct", "mine", "-p", '{"spec":{"replicas":2}}', code=1).stderr
    assert "strategic-merge-patch" in refused
    kubectl("patch", "ct", "mine", "--type=merge", "-p", '{"spec":{"replicas":2}}')
    kubectl("scale", "ct/mine", "--replicas=4")
    refused = kubectl.run("scale", "ct/mine", "--replicas=40", code=1).stderr
    assert "should be less than or equal to 10" in refused
    status = '{"status":{"replicas":3},"spec":{"replicas":1}}'
    kubectl("patch", "ct", "mine", "--subresource=status", "--type=merge", "-p", status)
    kubectl("wait", "ct/mine", "--for=jsonpath={.status.replicas}=3", "--timeout=20s")
    shown = kubectl("get", "ct", "mine", "-o", "jsonpath={.spec.replicas} {.status.replicas}")
    assert shown == "4 3"
    kubectl("delete", "ct", "mine", "--timeout=20s")
    kubectl("wait", "ct/mine", "--for=delete", "--timeout=20s")


def test_orchctl_uses_a_defined_kind_as_any_other(
    server: ApiServer, kubectl: Kubectl, tmp_path: Path
) -> None:
    file = tmp_path / "crontab.json"

    def ctl(*words: str, code: int = 0) -> str:
        done = run_command(*words, "--kubeconfig", str(kubectl.kubeconfig))
        assert done.code == code, (words, done)
        return done.out + done.err

    def apply_of(document: dict[str, Any], code: int = 0) -> str:
        file.write_text(json.dumps(document))
        return ctl("apply", "-f", str(file), code=code)

    assert "crontab.stable.example.com/ctl created" in apply_of(crontab("ctl"))
    assert "configured" in apply_of(crontab("ctl", "1 * * * *", replicas=2))
    assert "unchanged" in apply_of(crontab("ctl", "1 * * * *", replicas=2))
    assert "spec.cronSpec" in apply_of(crontab("ctl", "never"), code=1)
    header, row = ctl("get", "ct").splitlines()
    assert header.split() == ["NAME", "SPEC", "REPLICAS", "AGE"]
    assert row.split()[:7] == ["ctl", "1", *"****", "2"]
    ctl("patch", "crontabs", "ctl", "--type=merge", "-p", '{"spec":{"replicas":4}}')
    assert ctl("get", "crontab/ctl", "-o", "jsonpath={.spec.replicas}").strip() == "4"
    ctl("wait", "ct/ctl", "--for=jsonpath={.spec.replicas}=4", "--timeout=20s")
    ctl("wait", f"crd/{NAME}", "--for=condition=Established", "--timeout=20s")
    assert "4" in ctl("describe", "crontab", "ctl")
    assert "deleted" in ctl("delete", "ct", "ctl")
    assert "not found" in ctl("get", "ct", "ctl", code=1)


def test_kubectl_applies_at_the_server_by_the_keys_of_the_schema(kubectl: Kubectl) -> None:
    first = crontab("served", steps=[{"name": "a", "run": "x"}])
    assert "serverside-applied" in apply(kubectl, first, "--server-side")
    other = crontab("served", steps=[{"name": "b"}])
    apply(kubectl, other, "--server-side", "--field-manager=other")
    steps = "jsonpath={.spec.steps[*].name}"
    assert sorted(kubectl("get", "ct", "served", "-o", steps).split()) == ["a", "b"]
    other["spec"]["steps"] = [{"name": "a", "run": "y"}]
    refused = apply(kubectl, other, "--server-side", "--field-manager=other", code=1)
    assert 'steps[name="a"].run' in refused
    diff = subprocess.run(
        kubectl.command("diff", "--server-side", "-f", "-"),
        input=json.dumps(first), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (diff.returncode, diff.stdout) == (0, ""), diff.stderr


def test_lightkube_and_the_official_client_use_a_defined_kind(
    server: ApiServer, kubectl: Kubectl
) -> None:
    kubeconfig = str(server.directory / "kubeconfig")
    light = lightkube.Client(config=lightkube.KubeConfig.from_file(kubeconfig))
    crontabs = create_namespaced_resource("stable.example.com", "v1", "CronTab", "crontabs")
    made = light.create(crontabs(crontab("light")))
    assert made.spec["replicas"] == 1
    change = {"spec": {"replicas": 2}}
    changed = light.patch(crontabs, "light", change, patch_type=PatchType.MERGE)
    assert changed.spec["replicas"] == 2
    connection = kubernetes.config.new_client_from_config(kubeconfig)
    custom = kubernetes.client.CustomObjectsApi(connection)
    place = ("stable.example.com", "v1", "default", "crontabs")
    custom.patch_namespaced_custom_object_status(*place, "light", {"status": {"replicas": 2}})
    scale = custom.get_namespaced_custom_object_scale(*place, "light")
    assert (scale["spec"], scale["status"]) == ({"replicas": 2}, {"replicas": 2})
    assert "light" in [o["metadata"]["name"]
                       for o in custom.list_namespaced_custom_object(*place)["items"]]  # fmt: skip
    light.delete(crontabs, "light")
    definitions = kubernetes.client.ApiextensionsV1Api(connection)
    found = definitions.read_custom_resource_definition(NAME)
    assert found.status.stored_versions == ["v1"]
    connection.rest_client.pool_manager.clear()
    light.close()


def test_a_deleted_definition_takes_its_objects_with_it(kubectl: Kubectl) -> None:
    apply(kubectl, crontab("last"))
    kubectl("delete", "crd", NAME, "--timeout=30s")
    eventually(
        lambda: NAME.partition(".")[0] not in kubectl("api-resources", "--cached=false"),
        within_s=20, what="the kind is not served any longer", poll_s=0.2,
    )  # fmt: skip
