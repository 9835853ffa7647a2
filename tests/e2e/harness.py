"""A whole local cluster for end-to-end tests: real daemons, a real runtime, one at a time."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 90.0  # for what takes a second or two, where the machine has much else to do
RUNTIME_BASE = Path(os.environ.get("TEST_RUNTIME_BASE") or ROOT / ".test" / "runtime" / "base")


def runtime_tool(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run tools/runtime and return what it printed."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "runtime"), *arguments],
        capture_output=True,
        text=True,
        timeout=600,
    )
    if check and done.returncode != 0:
        raise RuntimeError(f"tools/runtime {' '.join(arguments)} failed:\n{done.stderr}")
    return done


def eventually(check: Callable[[], Any], *, within_s: float, what: str, poll_s: float = 0.1) -> Any:
    """The first true answer of `check`, which may raise AssertionError meanwhile."""
    deadline = time.monotonic() + within_s
    last: object = None
    while True:
        try:
            last = check()
            if last:
                return last
        except AssertionError as error:
            last = error
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s:g} s: {what}; last seen: {last!r}")
        time.sleep(poll_s)


def ask(
    url: str, ca_file: str, pair: tuple[str, str], body: Any = None, method: str | None = None
) -> str:
    """The answer to a client with this certificate and key, for which no program is started.

    An error, or no answer, is an AssertionError with what was said.
    """
    trust = ssl.create_default_context(cafile=ca_file)
    trust.load_cert_chain(*pair)
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=60, context=trust) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            said = error.read().decode()
        with suppress(ValueError, KeyError, TypeError):
            said = json.loads(said)["message"]
        raise AssertionError(f"{url}: {error}: {said}") from None
    except (OSError, http.client.HTTPException) as error:
        raise AssertionError(f"{url}: {error}") from None


@dataclass
class LocalCluster:
    """`orch-up` in a directory of its own, and what a user would do to it."""

    run_dir: Path
    process: subprocess.Popen[bytes]
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def node(self) -> str:
        return str(self.info["node"])

    def reload(self) -> dict[str, Any]:
        self.info = json.loads((self.run_dir / "cluster.json").read_text())
        return self.info

    def pid(self, name: str) -> int:
        return int(self.reload()["pids"][name])

    def log(self, name: str) -> str:
        return (self.run_dir / "logs" / f"{name}.log").read_text()

    def kubectl(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        kubectl = shutil.which("kubectl")
        assert kubectl, "kubectl is installed by the set-up of make test"
        done = subprocess.run(
            [
                kubectl,
                f"--kubeconfig={self.info['kubeconfig']}",
                f"--cache-dir={self.run_dir / 'kubectl-cache'}",
                *arguments,
            ],
            capture_output=True,
            text=True,
            timeout=60,
        )
        if check:
            assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done

    def request(self, path: str, body: Any = None) -> str:
        """What the API server answers to the administrator's GET, or POST of a body."""
        pair = (self.info["clientCert"], self.info["clientKey"])
        return ask(self.info["apiserver"] + path, self.info["caFile"], pair, body)

    def get(self, path: str) -> Any:
        """GET through the API server; JSON."""
        return json.loads(self.request(path))

    def proxy(self, path: str) -> str:
        return f"/api/v1/nodes/{self.node}/proxy{path}"

    def pod(self, name: str, namespace: str = "default") -> dict[str, Any]:
        pod: dict[str, Any] = self.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
        return pod

    def container_ids(self, pod: str) -> dict[str, str]:
        statuses = self.pod(pod)["status"].get("containerStatuses", [])
        return {s["name"]: s.get("containerID", "") for s in statuses}

    def ready_condition(self) -> dict[str, Any]:
        node = self.get(f"/api/v1/nodes/{self.node}")
        found = [c for c in node["status"]["conditions"] if c["type"] == "Ready"]
        assert found, "the node has no Ready condition"
        condition: dict[str, Any] = found[0]
        return condition

    def taints(self) -> set[tuple[str, str]]:
        """(key, effect) of the node's taints."""
        spec = self.get(f"/api/v1/nodes/{self.node}").get("spec", {})
        return {(taint["key"], taint["effect"]) for taint in spec.get("taints") or []}

    def lease(self) -> dict[str, Any]:
        lease: dict[str, Any] = self.get(
            f"/apis/coordination.orch.io/v1/namespaces/orch-node-lease/leases/{self.node}"
        )
        return lease

    def stop(self, *, within_s: float = 90) -> int:
        """Ctrl-C: SIGINT, and the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.process.kill()  # its daemons end with it
            self.process.wait()
            raise


@contextmanager
def local_cluster(
    run_dir: Path, *arguments: str, runtime: str | None, confined: Sequence[str] = ()
) -> Iterator[LocalCluster]:
    """Start orch-up with free ports, wait for `ready`, and stop it at the end.

    `confined` is a command that runs another with fewer rights.
    """
    output = run_dir.parent / f"{run_dir.name}.out"
    with output.open("wb") as sink:
        process = subprocess.Popen(
            [
                *confined, sys.executable, "-m", "orch.up.main",
                f"--run-dir={run_dir}",
                "--apiserver-port=0", "--nodeagent-port=0", "--healthz-port=0",
                f"--container-runtime-endpoint={runtime or ''}",
                *arguments,
            ],
            stdout=sink, stderr=sink, start_new_session=True,
        )  # fmt: skip
    cluster = LocalCluster(run_dir, process)
    try:
        eventually(
            lambda: process.poll() is not None or b"\nready" in b"\n" + output.read_bytes(),
            within_s=120,
            what=f"orch-up is ready ({output})",
        )
        assert process.poll() is None, output.read_text()
        cluster.reload()
        yield cluster
    finally:
        cluster.stop()


def jobs_of(cluster: LocalCluster, *paths: str) -> list[dict[str, Any]]:
    """Prometheus' scrape jobs for these pages of the agent, named after them."""
    return [
        {
            "job_name": path,
            "scheme": "https",
            "metrics_path": path,
            "tls_config": {
                "ca_file": cluster.info["caFile"],
                "cert_file": cluster.info["monitoringCert"],
                "key_file": cluster.info["monitoringKey"],
            },
            "static_configs": [{"targets": [cluster.info["nodeagent"].removeprefix("https://")]}],
        }
        for path in paths
    ]
