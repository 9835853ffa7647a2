"""exec, attach, cp and port-forward for real: every `kubectl`, and the official clients."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import select
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from tests.e2e.apiserver import kubectls, newest_kubectl
from tests.e2e.harness import ROOT, LocalCluster, eventually
from tests.e2e.test_kubectl_commands import tried
from tests.fakes.ports import free_port

CLIENTS = Path(f"{sys.prefix}-clients")
PROGRAMS = Path(__file__).parent / "clients"
SPDY = {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false", "KUBECTL_PORT_FORWARD_WEBSOCKETS": "false"}
MIB = 2**20
SERVES = "mkdir /w; echo served > /w/page; httpd -p 8080 -h /w; while read x; do echo got $x; done"

pytestmark = [
    pytest.mark.real,
    pytest.mark.seconds(90),
    pytest.mark.skipif(not kubectls(), reason="kubectl is not installed"),
]


class Kubectl:
    """One binary against the cluster."""

    def __init__(self, binary: str, cluster: LocalCluster, **more: str) -> None:
        self._head = [
            binary, f"--kubeconfig={cluster.info['kubeconfig']}",
            f"--cache-dir={cluster.run_dir / 'kubectl-cache'}",
        ]  # fmt: skip
        self._environment = {**os.environ, **more}

    def start(self, *words: str, **settings: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*self._head, *words], env=self._environment, **settings)

    def run(
        self, *words: str, stdin: bytes = b"", code: int = 0
    ) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(
            [*self._head, *words], input=stdin, capture_output=True, timeout=120,
            env=self._environment,
        )  # fmt: skip
        assert done.returncode == code, f"{words}: {done.stdout[-300:]!r}{done.stderr!r}"
        return done


@pytest.fixture(scope="module")
def pod(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("pods") / "pod.json"
    container = {
        "name": "c", "image": "localhost/busybox:1", "stdin": True,
        "command": ["sh", "-c", f"{SERVES}; sleep 10000"],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }  # fmt: skip
    spec = {
        "nodeName": cluster.node, "terminationGracePeriodSeconds": 0,
        "volumes": [{"name": "data", "emptyDir": {}}], "containers": [container],
    }  # fmt: skip
    record = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "reached"}, "spec": spec}
    path.write_text(json.dumps(record))
    cluster.kubectl("create", "-f", str(path))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/reached", "--timeout=30s")
    return "reached"


@pytest.fixture
def newest(cluster: LocalCluster) -> Kubectl:
    binary = newest_kubectl()
    assert binary
    return Kubectl(binary, cluster)


@pytest.fixture(params=["by default", "over SPDY"])
def wire(request: pytest.FixtureRequest) -> dict[str, str]:
    return SPDY if request.param == "over SPDY" else {}


@contextmanager
def forwarded(kubectl: Kubectl, pod: str) -> Iterator[int]:
    port = free_port()
    with kubectl.start(
        "port-forward", pod, f"{port}:8080", stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            assert process.stdout is not None
            assert b"Forwarding from" in process.stdout.readline()
            yield port
        finally:
            process.terminate()


def page(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/page", timeout=20) as answer:
        body: bytes = answer.read()
        return body


@pytest.mark.parametrize("binary", tried())
def test_every_kubectl_reaches_into_a_pod(
    cluster: LocalCluster, pod: str, tmp_path: Path, binary: str, wire: dict[str, str]
) -> None:
    kubectl = Kubectl(binary, cluster, **wire)
    done = kubectl.run("exec", pod, "--", "sh", "-c", "echo out; echo err >&2; exit 7", code=7)
    assert done.stdout == b"out\n"
    assert done.stderr == b"err\ncommand terminated with exit code 7\n"
    data = os.urandom(3 * MIB)
    assert kubectl.run("exec", "-i", pod, "--", "cat", stdin=data).stdout == data
    (tmp_path / "sent").write_bytes(data)
    kubectl.run("cp", str(tmp_path / "sent"), f"{pod}:/data/copied")
    kubectl.run("cp", f"{pod}:/data/copied", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == data
    with forwarded(kubectl, pod) as port:
        assert [page(port), page(port)] == [b"served\n"] * 2
    with kubectl.start(
        "attach", "-i", pod,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as attached:  # fmt: skip
        assert attached.stdin is not None and attached.stdout is not None
        attached.stdin.write(b"line\n")
        attached.stdin.flush()
        assert attached.stdout.readline() == b"got line\n"
        attached.terminate()


def test_a_refusal_says_why(newest: Kubectl, pod: str) -> None:
    for words, why in (
        (("exec", "gone", "--", "true"), b'pods "gone" not found'),
        (("exec", pod, "-c", "x", "--", "true"), b"container x is not valid for pod reached"),
        (("exec", pod, "--", "/no/such"), b"/no/such"),
    ):
        assert why in newest.run(*words, code=1).stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "mebibytes", [256, pytest.param(1024, marks=[pytest.mark.soak, pytest.mark.timeout(600)])]
)
def test_a_large_file_is_copied_both_ways_in_flat_memory(
    cluster: LocalCluster, newest: Kubectl, pod: str, tmp_path: Path, mebibytes: int
) -> None:
    sent, back = tmp_path / "sent", tmp_path / "back"
    with sent.open("wb") as file:
        for _ in range(mebibytes):
            file.write(os.urandom(MIB))
    programs = [psutil.Process(cluster.pid(name)) for name in ("apiserver", "nodeagent")]
    before = [program.memory_info().rss for program in programs]
    newest.run("cp", str(sent), f"{pod}:/data/large")
    newest.run("cp", f"{pod}:/data/large", str(back))
    grown = [program.memory_info().rss - was for program, was in zip(programs, before, strict=True)]
    with sent.open("rb") as one, back.open("rb") as other:
        assert (
            hashlib.file_digest(one, "md5").digest() == hashlib.file_digest(other, "md5").digest()
        )
    assert max(grown) < 24 * MIB, grown
    newest.run("exec", pod, "--", "rm", "/data/large")


class Execs:
    """Execs over WebSockets from this process."""

    def __init__(self, cluster: LocalCluster, pod: str, session: aiohttp.ClientSession) -> None:
        self._url = f"{cluster.info['apiserver']}/api/v1/namespaces/default/pods/{pod}/exec"
        self._session = session
        context = ssl.create_default_context(cafile=cluster.info["caFile"])
        context.load_cert_chain(cluster.info["clientCert"], cluster.info["clientKey"])
        self._context = context
        self._sockets: list[Any] = []

    async def closed(self) -> None:
        """Wait until nothing of them is open here: closing TLS takes a moment."""
        while any(one.fileno() >= 0 for one in self._sockets):
            await asyncio.sleep(0.01)

    async def echo(self, number: int, gate: asyncio.Barrier) -> bytes:
        """All are open at the same time before any is used."""
        query = [("command", "cat"), ("stdin", "1"), ("stdout", "1")]
        async with self._session.ws_connect(
            self._url, params=query, protocols=["v5.channel.k8s.io"], ssl=self._context
        ) as socket:
            self._sockets.append(socket.get_extra_info("socket"))
            await gate.wait()
            await socket.send_bytes(b"\x00%d" % number)
            await socket.send_bytes(b"\xff\x00")
            got = [message.data async for message in socket]
        assert b'"status":"Success"' in got[-1].replace(b" ", b"")
        return b"".join(one[1:] for one in got[:-1])


@pytest.mark.may_block
async def test_fifty_execs_run_at_once(cluster: LocalCluster, pod: str) -> None:
    async with aiohttp.ClientSession() as session, asyncio.timeout(100):
        execs, gate = Execs(cluster, pod, session), asyncio.Barrier(50)
        echoed = await asyncio.gather(*(execs.echo(number, gate) for number in range(50)))
        await execs.closed()
    assert echoed == [b"%d" % number for number in range(50)]


def typed(command: str, *lines: tuple[bytes, bytes]) -> bytes:
    """What a command shows on a terminal: each line is typed once its sign has been seen.

    A prompt written before the client has attached is lost, and `kubectl` says so: "If you don't
    see a command prompt, try pressing enter." As a user would, Enter is pressed until it shows.
    """
    shown, until_s = b"", time.monotonic() + 60
    with subprocess.Popen(
        ["script", "-qefc", f"stty rows 40 cols 100; {command}", "/dev/null"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0,
    ) as process:  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        try:
            for sign, line in lines:
                while sign not in shown:
                    assert time.monotonic() < until_s, shown
                    if select.select([process.stdout], [], [], 2)[0]:
                        read = os.read(process.stdout.fileno(), 4096)
                        assert read, shown
                        shown += read
                    elif b"try pressing enter" in shown:
                        process.stdin.write(b"\n")
                process.stdin.write(line)
            shown += process.communicate(timeout=60)[0]
        finally:
            process.kill()
    assert process.returncode == 0, shown
    return shown


@pytest.mark.parametrize(
    "words",
    [
        "run once --rm --restart=Never --image=localhost/busybox:1 --overrides='OVERRIDES' -it"
        " -- sh",
        "debug -it reached --image=localhost/busybox:1 -- sh",
    ],
)
def test_a_terminal_is_interactive(cluster: LocalCluster, pod: str, words: str) -> None:
    overrides = json.dumps({"spec": {"nodeName": cluster.node}})
    command = f"{newest_kubectl()} --kubeconfig={cluster.info['kubeconfig']} "
    command += words.replace("OVERRIDES", overrides)
    shown = typed(
        command,
        (b"# ", b"echo sum-$((1+1)); stty size\n"),
        (b"sum-2", b"exit 0\n"),
    )
    assert b"40 100" in shown


@pytest.mark.parametrize(
    ("program", "with_signal"), [("nodeagent", signal.SIGKILL), ("apiserver", signal.SIGTERM)]
)
def test_a_stream_ends_when_a_program_between_restarts(
    cluster: LocalCluster, newest: Kubectl, pod: str, program: str, with_signal: signal.Signals
) -> None:
    pid = cluster.pid(program)
    with newest.start(
        "exec", pod, "-c", "c", "--", "sh", "-c", "echo begun; sleep 1000",
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        os.kill(pid, with_signal)
        _, told = process.communicate(timeout=30)
    assert process.returncode == 1 and b"error" in told, told
    eventually(lambda: cluster.pid(program) != pid, within_s=60, what=f"a new {program}")
    again = ("exec", pod, "-c", "c", "--", "true")
    eventually(
        lambda: cluster.kubectl(*again, check=False).returncode == 0,
        within_s=60, what="commands run again",
    )  # fmt: skip


def run_client(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


def test_the_python_client_reaches_into_a_pod(cluster: LocalCluster, pod: str) -> None:
    program = PROGRAMS / "python_streams.py"
    run_client(sys.executable, program, cluster.info["kubeconfig"], pod)


def test_the_javascript_client_reaches_into_a_pod(cluster: LocalCluster, pod: str) -> None:
    node = shutil.which("node")
    if node is None or not (CLIENTS / "node_modules/@kubernetes/client-node").is_dir():
        pytest.skip("needs node and @kubernetes/client-node (tools/setup test)")
    program = PROGRAMS / "javascript_streams.mjs"
    run_client(node, program, cluster.info["kubeconfig"], CLIENTS, pod)


def test_orchctl_runs_a_command(cluster: LocalCluster, pod: str) -> None:
    head = [sys.executable, "-m", "orch.ctl.main", "--kubeconfig", cluster.info["kubeconfig"]]
    data = os.urandom(3 * MIB)
    done = subprocess.run(
        [*head, "exec", "-i", pod, "-c", "c", "--", "sh", "-c", "cat; exit 5"],
        input=data, capture_output=True, timeout=60, cwd=ROOT,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (5, b"")
    assert done.stdout == data
