"""Helm 3, or Helm 4: a release's whole life, without a flag for this server.

Arguments: kubeconfig, the directory of the chart, and 3 or 4.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import kr8s
from kr8s.objects import ConfigMap, Pod, ResourceQuota, new_class

KUBECONFIG, CHART, MAJOR = sys.argv[1:]
NAMESPACE = NAME = f"helm{MAJOR}"
api = kr8s.api(kubeconfig=KUBECONFIG)
Kettle = new_class("Kettle", version="helm.example.com/v1", namespaced=True)


class Helm:
    """The commands of the program."""

    def __init__(self) -> None:
        program = Path(sys.executable).with_name("helm4" if MAJOR == "4" else "helm")
        self._command = [program, f"--kubeconfig={KUBECONFIG}", f"--namespace={NAMESPACE}"]

    def _run(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run([*self._command, *arguments], capture_output=True, text=True)
        assert (done.returncode == 0) == (code == 0), (arguments, done.stdout, done.stderr)
        return done.stdout if code == 0 else done.stderr

    def install(self) -> None:
        self._run("install", NAME, CHART, "--create-namespace")

    def upgrade(self, values: dict[str, Any]) -> None:
        self._run("upgrade", NAME, CHART, *_set(values))

    def refused(self, values: dict[str, Any]) -> str:
        return self._run("upgrade", NAME, CHART, *_set(values), code=1)

    def rollback(self, revision: int) -> None:
        self._run("rollback", NAME, str(revision))

    def statuses(self) -> list[str]:
        history = json.loads(self._run("history", NAME, "--output=json"))
        return [one["status"] for one in history]

    def names(self) -> list[str]:
        return [one["name"] for one in json.loads(self._run("list", "--output=json"))]

    def uninstall(self) -> None:
        self._run("uninstall", NAME)


def _set(values: dict[str, Any]) -> list[str]:
    return [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]


def stored(kind: Any) -> Any:
    return kind.get(NAME, namespace=NAMESPACE, api=api)


def data() -> dict[str, str]:
    return dict(stored(ConfigMap).raw["data"])


helm = Helm()
helm.install()
assert data() == {"greeting": "hello", "extra": "yes"}
assert helm.names() == [NAME]
managers = {one["manager"]: one["operation"] for one in stored(ConfigMap).metadata.managedFields}
assert set(managers.values()) == {"Apply" if MAJOR == "4" else "Update"}, managers
uid = stored(Pod).metadata.uid

helm.upgrade({"greeting": "hello", "replicas": 2, "extra": False})
assert data() == {"greeting": "hello"}  # what the chart has no longer is gone
assert stored(ResourceQuota).spec.hard.pods == "20"
assert stored(Kettle).spec.replicas == 2
assert stored(Pod).metadata.uid == uid

if MAJOR == "4":  # somebody else's field, which Helm 3 would overwrite silently
    stored(ConfigMap).patch({"data": {"greeting": "mine"}})
    assert "conflict with" in helm.refused({"greeting": "again"})
    stored(ConfigMap).patch({"data": {"greeting": "hello"}})
told = helm.refused({"replicas": 7})
assert "spec.replicas" in told and "less than or equal to 5" in told, told

helm.rollback(1)
assert data() == {"greeting": "hello", "extra": "yes"}
assert stored(Kettle).spec.replicas == 1
statuses = helm.statuses()
assert statuses[0] == "superseded" and statuses[-1] == "deployed" and "failed" in statuses, statuses

helm.uninstall()
assert helm.names() == []
assert not list(api.get("configmaps", NAME, namespace=NAMESPACE))
assert not list(api.get("kettles.helm.example.com", namespace=NAMESPACE))
