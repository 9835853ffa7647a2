"""The project as a package would install it on a test machine: programs, units, configuration.

The programs run with the interpreter and the packages of the tests, shown below /opt.
"""

from __future__ import annotations

import json
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

from orch.client.kubeconfig import ClientConfig, write_kubeconfig
from orch.component.pki import KeyPair
from orch.up.layout import Certificates, issue_certificates
from tools.testbed.machine import Machine

REPOSITORY = Path(__file__).resolve().parents[2]
NODE = "testbed"
PYTHON = "/usr/bin/python-of-the-tests"
ADMIN_KUBECONFIG = "/root/admin.kubeconfig"
APISERVER = "https://127.0.0.1:6443"
_PROGRAMS = {
    "nodeagent": "nodeagent.main",
    "nodeagent-mounts": "nodeagent.pods.volumes.mount_helper",
    "orch-apiserver": "orch.server.main",
    "orch-controller-manager": "orch.lifecycle.main",
    "orchctl": "orch.ctl.main",
}
_DIRECTORIES = """
mkdir -p /etc/nodeagent/config.d /etc/nodeagent/manifests
chmod -R go= /etc/nodeagent
"""
_AGENT_CONFIG = """\
apiVersion: nodeagent.config.orch.io/v1beta1
kind: NodeAgentConfiguration
authentication: {x509: {clientCAFile: /etc/nodeagent/ca.crt}}
tlsCertFile: /etc/nodeagent/tls.crt
tlsPrivateKeyFile: /etc/nodeagent/tls.key
staticPodPath: /etc/nodeagent/manifests
"""
_WRAPPER = """#!/bin/sh
export PYTHONHOME=/opt/python LD_LIBRARY_PATH=/opt/python/lib PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH=/opt/nodeagent:/opt/nodeagent/site-packages
exec /opt/python/bin/python3 {arguments} "$@"
"""

Files = dict[str, tuple[str, int]]  # path → text and mode


def shown() -> list[tuple[Path, str]]:
    """Interpreter, packages and sources, and where the machine sees them."""
    return [
        *_interpreter(),
        (Path(sysconfig.get_path("purelib")), "/opt/nodeagent/site-packages"),
        (REPOSITORY / "nodeagent", "/opt/nodeagent/nodeagent"),
        (REPOSITORY / "orch", "/opt/nodeagent/orch"),
        (REPOSITORY / "systemd", "/opt/nodeagent/systemd"),
    ]


def _interpreter() -> Iterator[tuple[Path, str]]:
    """Of one in /usr no more than its own: the rest there is the machine's."""
    prefix = Path(sys.base_prefix).resolve()
    if prefix != Path("/usr"):
        yield prefix, "/opt/python"
        return
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    yield prefix / "bin" / name, "/opt/python/bin/python3"
    yield prefix / "lib" / name, f"/opt/python/lib/{name}"


def wrapper(arguments: str) -> str:
    """The shell script that starts the interpreter of the tests with these arguments."""
    return _WRAPPER.format(arguments=arguments)


def install(
    machine: Machine,
    pki: Path,
    *,
    now: datetime,
    runtime: str = "",
    standalone: bool = False,
    more: Mapping[str, str] | None = None,
) -> Certificates:
    """Put programs, units, configuration and credentials into place; nothing is started.

    `runtime` is the CRI endpoint of the machine; without it the agent runs no pods. A `standalone`
    agent has no API server. `more` are further files, path → text.
    """
    certificates = issue_certificates(pki, NODE, now=now)
    files = dict(_programs())
    files |= _of_the_agent(certificates, runtime, standalone=standalone)
    files |= _of_the_servers(certificates)
    files |= {path: (text, 0o644) for path, text in (more or {}).items()}
    machine.write_all(files)
    machine.check("sh", "-euc", _DIRECTORIES)
    machine.check("systemctl", "daemon-reload", timeout_s=180)
    return certificates


def _programs() -> Iterator[tuple[str, tuple[str, int]]]:
    for name, module in _PROGRAMS.items():
        yield f"/usr/bin/{name}", (wrapper(f"-m {module}"), 0o755)
    yield PYTHON, (wrapper(""), 0o755)
    for unit in (REPOSITORY / "systemd").glob("*.*"):
        yield f"/usr/lib/systemd/system/{unit.name}", (unit.read_text(), 0o644)


def _of_the_agent(certificates: Certificates, runtime: str, *, standalone: bool) -> Files:
    arguments = f"--hostname-override={NODE}"
    if not standalone:
        arguments = f"--kubeconfig=/etc/nodeagent/kubeconfig {arguments}"
    config = f"{_AGENT_CONFIG}containerRuntimeEndpoint: {json.dumps(runtime)}\n"
    return {
        "/etc/nodeagent/ca.crt": _private(certificates.ca_file),
        "/etc/nodeagent/tls.crt": _private(certificates.nodeagent.cert_file),
        "/etc/nodeagent/tls.key": _private(certificates.nodeagent.key_file),
        "/etc/nodeagent/config.yaml": (config, 0o600),
        "/etc/nodeagent/kubeconfig": (_kubeconfig(certificates, certificates.node), 0o600),
        "/etc/default/nodeagent": (f'NODEAGENT_ARGS="{arguments}"\n', 0o644),
    }


def _of_the_servers(certificates: Certificates) -> Files:
    """What both servers and the cluster's administrator have."""
    files: Files = {}
    for name, source in (
        ("tls.crt", certificates.apiserver.cert_file),
        ("tls.key", certificates.apiserver.key_file),
        ("client-ca.crt", certificates.ca_file),
        ("nodeagent-ca.crt", certificates.ca_file),
        ("nodeagent-client.crt", certificates.proxy.cert_file),
        ("nodeagent-client.key", certificates.proxy.key_file),
        ("service-account.key", certificates.service_account.key_file),
        ("ca.crt", certificates.ca_file),
        ("ca.key", Path(certificates.ca_file).with_suffix(".key")),
        ("nodeagent-ca.key", Path(certificates.ca_file).with_suffix(".key")),
    ):
        mode = 0o644 if name.endswith(".crt") else 0o600
        files[f"/etc/orch-apiserver/{name}"] = Path(source).read_text(), mode
    for source in (
        certificates.ca_file,
        certificates.admin.cert_file,
        certificates.admin.key_file,
    ):
        files[f"/root/pki/{Path(source).name}"] = _private(source)
    controller = _kubeconfig(certificates, certificates.controller)
    ended = "abcdef.0123456789abcdef 2020-01-01T00:00:00Z\n"
    return files | {
        "/etc/orch-apiserver/controller-manager.kubeconfig": (controller, 0o600),
        "/etc/orch-apiserver/bootstrap-token": (ended, 0o600),
        "/etc/default/orch-apiserver": ('APISERVER_ARGS="--node-proxy-allow-loopback"\n', 0o644),
        ADMIN_KUBECONFIG: (_kubeconfig(certificates, certificates.admin), 0o600),
    }


def _private(source: str) -> tuple[str, int]:
    return Path(source).read_text(), 0o600


def _kubeconfig(certificates: Certificates, pair: KeyPair) -> str:
    """A kubeconfig with the credentials inside it."""
    config = ClientConfig(
        server=APISERVER,
        ca_data=Path(certificates.ca_file).read_bytes(),
        cert_data=Path(pair.cert_file).read_bytes(),
        key_data=Path(pair.key_file).read_bytes(),
    )
    path = Path(pair.key_file).with_suffix(".kubeconfig")
    write_kubeconfig(str(path), config)
    return path.read_text()
