"""The surroundings of a tried kubectl command: a namespace and a node of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml

from tests.e2e.apiserver import ApiServer, Kubectl

BUSY = "busy"  # a pod that is there from the start: its usage takes two readings
VERSIONS = ("1.20", *(f"1.{minor}" for minor in range(27, 34)), "1.36")  # 1.20 is Debian 12's
POD = """
apiVersion: v1
kind: Pod
metadata: {name: NAME, labels: {app: web}}
spec:
  nodeName: NODE
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
    {matchExpressions: [{key: a, operator: In, values: [b]}]}]}}}
  volumes: [{name: v, secret: {secretName: s, items: [{key: k, path: p}]}}]
  containers:
  - name: c
    image: "busybox:1"
    envFrom: [{configMapRef: {name: c}}]
    resources: {requests: {cpu: 1}}
"""


@dataclass
class World:
    """One kubectl with a namespace and a node of its own on a server that all share."""

    kubectl: Kubectl
    namespace: str
    node: str
    server: ApiServer

    def __call__(self, *arguments: str, stdin: str = "", code: int = 0) -> str:
        """What it prints; no warning may come with it."""
        done = self.run(*arguments, stdin=stdin, code=code)
        assert "arning" not in done.stderr, done.stderr
        return done.stdout.strip()

    def run(
        self, *arguments: str, stdin: str = "", code: int = 0
    ) -> subprocess.CompletedProcess[str]:
        return self.kubectl.run("-n", self.namespace, *arguments, stdin=stdin, code=code)

    def pod(self, name: str) -> str:
        return POD.replace("NAME", name).replace("NODE", self.node)

    # What a command finds and leaves is made and taken away without one.

    def made(self, name: str) -> str:
        self.server.request(self._path(), yaml.safe_load(self.pod(name)))
        return name

    def gone(self, name: str) -> None:
        self.server.request(f"{self._path(name)}?gracePeriodSeconds=0", method="DELETE")

    def set_status(self, pod: str, **status: object) -> None:
        self.server.set_status(self._path(pod), status)

    def _path(self, pod: str = "") -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{pod}".rstrip("/")

    def value(self, what: str, path: str) -> str:
        return self("get", *what.split("/"), "-o", f"jsonpath={{{path}}}")


Run = Callable[[World], Any]


@dataclass(frozen=True)
class Case:
    """`since`: the first version it works with; `never`: why it does not; `aliases`: it takes
    `--serve-upstream-aliases`.
    """

    command: str
    run: Run | None
    aliases: bool = False
    since: str = VERSIONS[0]
    never: str = ""

    def works_with(self, version: str) -> bool:
        minor = [int(part) for part in version.split(".")]
        return not self.never and minor >= [int(part) for part in self.since.split(".")]
