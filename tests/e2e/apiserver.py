"""The API server as a process of its own, and unmodified `kubectl`s that speak to it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from orch.component.pki import Authority, KeyPair, Subject
from tests import preloaded
from tests.e2e.harness import ROOT, ask, eventually
from tests.preloaded import Copy


@dataclass
class ApiServer:
    """A running `orch-apiserver` and the files that belong to it."""

    directory: Path
    process: subprocess.Popen[bytes] | Copy
    port: int
    ca_file: str
    admin: KeyPair
    authority: Authority  # for further certificates
    start_s: float = 0.0  # from its start until it listened

    def log(self) -> str:
        return (self.directory / "log").read_text()

    def request(self, path: str, body: Any = None, method: str | None = None) -> str:
        """What it answers to the administrator's GET, or POST of a body, or another method."""
        pair = (self.admin.cert_file, self.admin.key_file)
        return ask(f"https://127.0.0.1:{self.port}{path}", self.ca_file, pair, body, method)

    def set_status(self, path: str, status: dict[str, object]) -> None:
        """Write into the status at a path, as an agent does."""
        shown = json.loads(self.request(f"{path}/status"))
        shown["status"] = {**shown.get("status", {}), **status}
        self.request(f"{path}/status", shown, "PUT")


@dataclass
class Kubectl:
    """One kubectl binary, as the cluster's administrator, with a cache of its own."""

    binary: str
    kubeconfig: Path
    cache: Path

    def command(self, *arguments: str) -> list[str]:
        return [
            self.binary, f"--kubeconfig={self.kubeconfig}", f"--cache-dir={self.cache}", *arguments,
        ]  # fmt: skip

    def run(
        self, *arguments: str, stdin: str = "", code: int = 0, timeout_s: float = 60
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*arguments),
            input=stdin, capture_output=True, text=True, timeout=timeout_s,
            env={**os.environ, "HOME": str(self.cache)},
        )  # fmt: skip
        assert done.returncode == code, f"{arguments}: {done.stdout}{done.stderr}"
        return done

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        """What it printed; fails unless it succeeded."""
        return self.run(*arguments, stdin=stdin).stdout.strip()


def kubectls() -> list[str]:
    """The kubectl on the path, other versions lying beside it, and what `tools/setup` brings."""
    found = shutil.which("kubectl")
    beside = sorted(Path(found).resolve().parent.glob("kubectl.1.*")) if found else []
    known = {path.name for path in beside}
    brought = sorted(Path(f"{sys.prefix}-clients/bin").glob("kubectl.1.*"))
    more = (path for path in (*beside, *brought) if path in beside or path.name not in known)
    return [*([found] if found else ()), *map(str, more)]


def oldest_and_newest_kubectl() -> list[str]:
    """Of several versions these two, or the only one; none without any."""
    versioned = [path for path in kubectls() if path.rpartition("kubectl.1.")[2].isdecimal()]
    known = sorted(versioned, key=lambda path: int(path.rpartition(".")[2])) or kubectls()
    return list(dict.fromkeys([*known[:1], *known[-1:]]))


def newest_kubectl() -> str | None:
    """Of several versions the newest; None without any."""
    return next(reversed(oldest_and_newest_kubectl()), None)


@contextmanager
def running(directory: Path, *arguments: str, program: Sequence[str] = ()) -> Iterator[ApiServer]:
    """Start on the directory's data (kept between runs); ordered stop, which must succeed.

    It is a copy of one that has been loaded, or the interpreter starts `program`.
    """
    authority = Authority(directory / "pki", now=datetime.now(UTC))
    serving = authority.issue(Subject("server", "server", (), ("127.0.0.1",)))
    admin = authority.issue(Subject("admin", "admin", ("system:masters",)))
    port_file = directory / "port"
    port_file.unlink(missing_ok=True)
    began_s = time.perf_counter()
    flags = (
        "--bind-address=127.0.0.1", "--secure-port=0", f"--port-file={port_file}",
        f"--data-dir={directory / 'data'}", f"--client-ca-file={authority.ca_file}",
        f"--tls-cert-file={serving.cert_file}",
        f"--tls-private-key-file={serving.key_file}", *arguments,
    )  # fmt: skip
    process: subprocess.Popen[bytes] | Copy
    with (directory / "log").open("ab") as log:
        if program:
            command = [sys.executable, *program, *flags]
            process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        else:
            process = preloaded.start("orch.server.main", *flags, stdout=log, stderr=log)
    server = ApiServer(directory, process, 0, authority.ca_file, admin, authority)
    try:
        eventually(
            lambda: port_file.exists() or process.poll() is not None,
            within_s=60, what="the API server listens", poll_s=0.02,
        )  # fmt: skip
        assert process.poll() is None, server.log()
        server.start_s = time.perf_counter() - began_s
        server.port = int(port_file.read_text())
        write_kubeconfig(directory / "kubeconfig", server.port, authority.ca_file, admin)
        yield server
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=60)
    assert code in (0, -signal.SIGKILL), server.log()


def write_kubeconfig(path: Path, port: int, ca_file: str, user: KeyPair) -> None:
    cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": ca_file}
    credentials = {"client-certificate": user.cert_file, "client-key": user.key_file}
    record = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": credentials}],
        "current-context": "c",
    }
    path.write_text(json.dumps(record))
