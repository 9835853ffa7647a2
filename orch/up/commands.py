"""The ports and the command line of each daemon of a local cluster."""

from __future__ import annotations

import random
import shutil
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orch.component.process import system
from orch.component.process.daemon import SetupError
from orch.up.layout import Certificates, Layout

Command = tuple[str, ...]

# Below the kernel's ephemeral ports: a free port is still free when its daemon has started.
_PORTS = range(20_000, 32_000)
_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the daemons listen on loopback, none is 0; the API server also at `host_address`."""

    apiserver: int
    nodeagent: int
    healthz: int
    controller: int
    host_address: str = ""  # of the machine in the pods' network

    @classmethod
    def choose(cls, *, apiserver: int, nodeagent: int, healthz: int) -> Ports:
        """A free port in place of each 0, and for the controller manager.

        SetupError for one that is taken, and where there are none.
        """
        for port, flag in (
            (apiserver, "--apiserver-port"),
            (nodeagent, "--nodeagent-port"),
            (healthz, "--healthz-port"),
        ):
            if port and (problem := _problem(port)):
                variable = flag.strip("-").replace("-", "_").upper()
                other = f"choose another {flag} (make run: {variable}=…)"
                raise SetupError(f"cannot listen on {_HOST}:{port}{problem}; {other}")
        if problem := _problem(0):
            raise SetupError(f"a local cluster needs {_HOST}, the address of this machine{problem}")
        free = filter(_is_free, random.SystemRandom().sample(_PORTS, len(_PORTS)))
        return cls(
            apiserver=apiserver or next(free),
            nodeagent=nodeagent or next(free),
            healthz=healthz or next(free),
            controller=next(free),
        )


def _is_free(port: int) -> bool:
    return not _problem(port)


def _problem(port: int) -> str:
    """Why a port cannot be had, 0 for any; "" if it can."""
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((_HOST, port))
    except OSError as error:
        pid = system.listening_process(_HOST, port) if port else None
        who = f" ({system.describe_process(pid)})" if pid else ""
        return f": {(error.strerror or str(error)).lower()}{who}"
    return ""


def apiserver(
    layout: Layout, ports: Ports, certificates: Certificates, more: Sequence[str] = ()
) -> Command:
    """`more` are further flags of the API server."""
    return _program(
        "orch-apiserver",
        f"--bind-address={_HOST}{ports.host_address and ',' + ports.host_address}",
        f"--secure-port={ports.apiserver}",
        f"--data-dir={layout.store}",
        f"--client-ca-file={certificates.ca_file}",
        f"--tls-cert-file={certificates.apiserver.cert_file}",
        f"--tls-private-key-file={certificates.apiserver.key_file}",
        f"--nodeagent-certificate-authority={certificates.ca_file}",
        f"--nodeagent-client-certificate={certificates.proxy.cert_file}",
        f"--nodeagent-client-key={certificates.proxy.key_file}",
        f"--service-account-signing-key-file={certificates.service_account.key_file}",
        f"--root-ca-file={certificates.ca_file}",
        "--node-proxy-allow-loopback",
        *more,
    )


def apiserver_flags(etcd_servers: str, *, upstream_aliases: bool) -> list[str]:
    """The API server's flags for options of orch-up."""
    flags = ["--serve-upstream-aliases"] if upstream_aliases else []
    return [*flags, f"--etcd-servers={etcd_servers}"] if etcd_servers else flags


def controller_manager(layout: Layout, ports: Ports, certificates: Certificates) -> Command:
    return _program(
        "orch-controller-manager",
        "--bind-pods",
        f"--kubeconfig={layout.kubeconfig('controller-manager')}",
        f"--secure-port={ports.controller}",
        f"--client-ca-file={certificates.ca_file}",
        f"--tls-cert-file={certificates.controller_serving.cert_file}",
        f"--tls-private-key-file={certificates.controller_serving.key_file}",
    )


def nodeagent(
    layout: Layout, ports: Ports, certificates: Certificates, node: str, runtime: str | None
) -> Command:
    """`runtime` is the CRI endpoint; None runs the agent without one."""
    return _program(
        "nodeagent",
        f"--config={layout.agent_config}",
        f"--config-dir={layout.agent_drop_ins}",
        f"--kubeconfig={layout.kubeconfig('node')}",
        f"--root-dir={layout.agent_root}",
        f"--lock-file={layout.run_dir / 'nodeagent.lock'}",
        f"--hostname-override={node}",
        "--address=127.0.0.1",
        f"--port={ports.nodeagent}",
        f"--healthz-port={ports.healthz}",
        f"--client-ca-file={certificates.ca_file}",
        f"--tls-cert-file={certificates.nodeagent.cert_file}",
        f"--tls-private-key-file={certificates.nodeagent.key_file}",
        f"--container-runtime-endpoint={runtime or ''}",
        "--node-ip=127.0.0.1",
        "--remove-pods-on-stop",
    )


def _program(name: str, *arguments: str) -> Command:
    """A program beside the interpreter that runs orch-up; else, of another package, in PATH."""
    beside = Path(sys.executable).with_name(name)
    found = None if beside.exists() else shutil.which(name)
    return (found or str(beside), *arguments)
