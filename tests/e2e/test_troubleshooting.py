"""Every mistake of docs/troubleshooting.md, made: the line that the page promises is said."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nodeagent.doctor import checks, kernel
from orch.component.diagnostics.findings import Finding
from orch.component.pki import Authority, KeyPair, Subject
from orch.component.process import files
from tests import preloaded
from tests.conftest_runtime import RealRuntime
from tests.e2e import apiserver
from tests.e2e.harness import ROOT, RUNTIME_BASE, LocalCluster, eventually
from tests.fakes.registry import Registry
from tests.troubleshooting import PROMISED, UNIT, says

pytestmark = [pytest.mark.slow, pytest.mark.seconds(25)]

HEAD = "apiVersion: nodeagent.config.orch.io/v1beta1\nkind: NodeAgentConfiguration\n"
PATIENCE_S = 60.0
PYTHON = (sys.executable, "-m")


class Host:
    """Where the mistakes are made: agents, and an API server to which most of them belong."""

    def __init__(self, directory: Path, server: apiserver.ApiServer) -> None:
        self.directory = directory
        self.server = server
        self.foreign = Authority(directory / "foreign", now=datetime.now(UTC))
        self._agents = 0

    def node(self, name: str = "n1", authority: Authority | None = None) -> KeyPair:
        subject = Subject(name, f"system:node:{name}", ("system:nodes",))
        return (authority or self.server.authority).issue(subject)

    def kubeconfig(self, pair: KeyPair, *, ca_file: str = "", port: int = 0) -> str:
        path = self.directory / f"kubeconfig-{self._agents}"
        ca_file = ca_file or self.server.ca_file
        apiserver.write_kubeconfig(path, port or self.server.port, ca_file, pair)
        return f"--kubeconfig={path}"

    def agent(
        self, *flags: str, before: tuple[str, ...] = (), root: Path | None = None
    ) -> list[str]:
        self._agents += 1
        own = self.directory / f"agent-{self._agents}"
        own.mkdir()
        ports = free_ports(2)
        return [
            *before, *PYTHON, "nodeagent.main",
            f"--root-dir={root or own / 'root'}", f"--pod-logs-dir={own / 'logs'}",
            f"--lock-file={own / 'lock'}", "--address=127.0.0.1", f"--port={ports[0]}",
            f"--healthz-port={ports[1]}", "--container-runtime-endpoint=",
            "--hostname-override=n1", *flags,
        ]  # fmt: skip

    def config(self, text: str) -> list[str]:
        path = self.directory / "agent.yaml"
        path.write_text(HEAD + text)
        return self.agent(f"--config={path}")


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    directory = tmp_path_factory.mktemp("host")
    directory.chmod(0o755)
    (directory / "server").mkdir()
    tokens = directory / "tokens.csv"
    tokens.write_text("token-of-jane,jane,jane\n")
    tokens.chmod(0o600)
    with apiserver.running(directory / "server", f"--token-auth-file={tokens}") as server:
        yield Host(directory, server)


# ---- programs that do not start


def port_in_use(host: Host, stack: ExitStack) -> list[str]:
    taken = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    return host.agent(f"--port={taken.getsockname()[1]}")


def second_agent(host: Host, stack: ExitStack) -> list[str]:
    path = str(host.directory / "held.lock")
    stack.callback(os.close, files.acquire(path, holder="node agent"))
    return host.agent(f"--lock-file={path}")


def full_disk(host: Host, stack: ExitStack) -> list[str]:
    disk = host.directory / "full"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], check=True)
    stack.callback(lambda: subprocess.run(["umount", disk], check=True))
    with pytest.raises(OSError, match="No space"):
        (disk / "filler").write_bytes(bytes(128 * 1024))
    return host.agent(root=disk)


def wrong_key(host: Host, _: ExitStack) -> list[str]:
    pair, other = host.node(), host.node("n2")
    text = f"tlsCertFile: {pair.cert_file}\ntlsPrivateKeyFile: {other.key_file}\n"
    return host.config(text)


def server_command(host: Host, data: Path, *flags: str) -> list[str]:
    pair = host.node()
    return [
        *PYTHON, "orch.server.main", "--bind-address=127.0.0.1", "--secure-port=0",
        f"--data-dir={data}", f"--client-ca-file={host.server.ca_file}",
        f"--tls-cert-file={pair.cert_file}", f"--tls-private-key-file={pair.key_file}", *flags,
    ]  # fmt: skip


def key_of_before(host: Host, _: ExitStack) -> list[str]:
    """A server as under its unit, with a certificate for another key than it was given."""
    key = Path(host.node("n2").key_file)
    command = server_command(host, host.directory / "new", f"--tls-private-key-file={key}")
    return ["env", f"RUNTIME_DIRECTORY={key.parent}", *command]


NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
STARTS: dict[str, Callable[[Host, ExitStack], list[str]]] = {
    "a field that does not exist": lambda host, _: host.config("maxPod: 110\n"),
    "a value of the wrong kind": lambda host, _: host.config("maxPods: many\n"),
    "YAML with a mistake": lambda host, _: host.config("maxPods: [1\n"),
    "no such kubeconfig": lambda host, _: host.agent("--kubeconfig=/nowhere/kubeconfig"),
    "a host name that cannot name a node": lambda host, _: host.agent(
        "--hostname-override=my_node"
    ),
    "the port is in use": port_in_use,
    "a second agent": second_agent,
    "not root": lambda host, _: host.agent(before=NOBODY),
    "the disk is full": full_disk,
    "a key that belongs to another certificate": wrong_key,
    "no such certificate": lambda host, _: server_command(
        host, host.directory / "new", "--tls-cert-file=/nowhere/server.crt"
    ),
    "a new key, and a unit that was not reloaded": key_of_before,
    "a second server on the same data": lambda host, _: server_command(
        host, host.server.directory / "data"
    ),
    "no kubeconfig": lambda host, _: client("get", "pods"),
    "the server cannot be reached": lambda host, _: client(
        "get", "pods", "-s", "https://127.0.0.1:9"
    ),
    "no rights": lambda host, _: client("get", "pods", *as_jane(host)),
    "a kind that does not exist": lambda host, _: client("get", "pds", *as_jane(host)),
    "the key that signs tokens is absent": lambda host, _: client(
        "create", "token", "default", *as_admin(host)
    ),
}


def as_admin(host: Host) -> tuple[str, ...]:
    return (f"--kubeconfig={host.server.directory / 'kubeconfig'}",)


def client(*words: str) -> list[str]:
    unset = ("env", "-u", "KUBECONFIG", "HOME=/nowhere")
    return [*unset, *PYTHON, "orch.ctl.main", *words]


def as_jane(host: Host) -> tuple[str, ...]:
    server = f"https://127.0.0.1:{host.server.port}"
    authority = f"--certificate-authority={host.server.ca_file}"
    return ("-s", server, authority, "--token", "token-of-jane")


def ended(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Of a program that is started as itself, or by another."""
    if tuple(command[:2]) == PYTHON:
        return preloaded.run(*command[2:], timeout_s=PATIENCE_S)
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, cwd=ROOT)


@pytest.mark.parametrize("mistake", STARTS)
def test_a_program_that_does_not_start_says_why_in_one_line(host: Host, mistake: str) -> None:
    with ExitStack() as stack:
        done = ended(STARTS[mistake](host, stack))
    assert done.returncode == 1, done.stderr
    errors = [line for line in done.stderr.splitlines() if "error: " in line]
    assert len(errors) == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert says(errors[0], mistake), done.stderr


# ---- programs that start


def expired(host: Host) -> str:
    old = host.directory / "old"
    shutil.copytree(host.server.directory / "pki", old)
    authority = Authority(old, now=datetime.now(UTC) - timedelta(days=800))
    subject = Subject("expired", "system:node:n1", ("system:nodes",))
    return host.kubeconfig(authority.issue(subject))


def keys_absent(host: Host) -> list[str]:
    absent = host.directory / "ca.key"
    absent.write_text("none")  # as the unit has it where there is no such file
    signing = f"--cluster-signing-cert-file={host.server.ca_file}"
    return [
        *PYTHON, "orch.lifecycle.main", "--secure-port=0",
        host.kubeconfig(host.node()), signing, f"--cluster-signing-key-file={absent}",
    ]  # fmt: skip


RUNS: dict[str, Callable[[Host], list[str]]] = {
    "the runtime is not there": lambda host: host.agent(
        f"--container-runtime-endpoint=unix://{host.directory}/none.sock"
    ),
    "the API server is down, or elsewhere": lambda host: host.agent(
        host.kubeconfig(host.node(), port=9)
    ),
    "the wrong certificate authority": lambda host: host.agent(
        host.kubeconfig(host.node(), ca_file=host.foreign.ca_file)
    ),
    "a client certificate of another authority": lambda host: host.agent(
        host.kubeconfig(host.node(authority=host.foreign))
    ),
    "an expired client certificate": lambda host: host.agent(expired(host)),
    "the certificate of another node": lambda host: host.agent(host.kubeconfig(host.node("n2"))),
    "etcd is not there": lambda host: server_command(
        host, host.directory / "none", "--etcd-servers=http://127.0.0.1:9"
    ),
    "the authority's keys are absent": keys_absent,
}


@pytest.mark.parametrize("mistake", RUNS)
def test_a_program_that_runs_in_vain_says_why(host: Host, mistake: str) -> None:
    log = host.directory / f"{mistake}.log"
    with log.open("wb") as output:
        module, *arguments = RUNS[mistake](host)[len(PYTHON) :]
        process = preloaded.start(module, *arguments, stdout=output, stderr=output)
    try:
        eventually(
            lambda: says(log.read_text(), mistake), within_s=PATIENCE_S, what=PROMISED[mistake]
        )
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
    assert "Traceback" not in log.read_text()


def found(findings: list[Finding]) -> str:
    return "\n".join(f"{one.check} {one.message} {one.advice}" for one in findings)


# What nobody can do to this machine: the findings of `nodeagent doctor` about such a host.
EXAMINED: dict[str, Callable[[], str]] = {
    "the clocks differ": lambda: found([checks.check_clock("https://server", 60.0, "")]),
    "an old kernel": lambda: found(
        kernel.check_kernel(kernel.KernelFacts("4.19.0", frozenset(), "", {"cpu": "absent"}))
    ),
}


@pytest.mark.parametrize("mistake", EXAMINED)
def test_the_doctor_says_what_is_wrong_with_the_host(mistake: str) -> None:
    assert says(EXAMINED[mistake](), mistake), EXAMINED[mistake]()


# ---- pods


def pod(name: str, container: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    only = {"name": "c", "image": "localhost/busybox:1", "command": ["true"], **(container or {})}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "containers": [only], **spec},
    }  # fmt: skip


PODS: dict[str, dict[str, Any]] = {
    "no `nodeName`, and no node that fits": pod("choosy", nodeSelector={"disk": "none"}),
    "a `nodeName` that does not exist": pod("lost", nodeName="nowhere"),
    "a private registry": pod("stranger", container={"image": "PRIVATE"}),
    "a ConfigMap that does not exist": pod(
        "unconfigured", container={"envFrom": [{"configMapRef": {"name": "absent"}}]}
    ),
    "more than the node has": pod("greedy", container={"resources": {"requests": {"cpu": "1000"}}}),
}


def test_a_pod_that_does_not_run_says_why(
    cluster: LocalCluster, real_runtime: RealRuntime, tmp_path: Path
) -> None:
    busybox = RUNTIME_BASE / "root" / "usr" / "bin" / "busybox"
    with Registry("team/app", busybox, "s3cret").serving() as registry:
        registry.tell(real_runtime)
        for manifest in PODS.values():
            path = tmp_path / "pod.json"
            path.write_text(json.dumps(manifest).replace("PRIVATE", registry.image))
            cluster.kubectl("create", "-f", str(path))
        for mistake, manifest in PODS.items():
            shown = partial(described, cluster, manifest["metadata"]["name"], mistake)
            eventually(shown, within_s=PATIENCE_S, what=mistake)


def described(cluster: LocalCluster, name: str, mistake: str) -> bool:
    return says(cluster.kubectl("describe", "pod", name).stdout, mistake)


def test_every_row_of_the_page_is_staged() -> None:
    assert list(PROMISED) and set(PROMISED) == {*STARTS, *RUNS, *EXAMINED, *PODS, UNIT}
