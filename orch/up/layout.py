"""The files of a local cluster: the contract of RUN_DIR, the agent's configuration, certificates.

Knows no processes and no ports.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from pathlib import Path

from orch.component.pki import Authority, KeyPair, Subject
from orch.wire import names

DEMO_IMAGE = "localhost/busybox:1"  # of demo.yaml; a provisioned runtime has it


class Layout:
    """The paths below `run_dir`, which is absolute."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.pki = run_dir / "pki"
        self.logs = run_dir / "logs"
        self.agent_root = run_dir / "nodeagent"
        self.agent_config = run_dir / "nodeagent.conf"
        self.agent_drop_ins = run_dir / "nodeagent.conf.d"
        self.manifests = run_dir / "manifests"
        self.runtime = run_dir / "runtime"
        self.store = run_dir / "apiserver"
        self.cluster_file = run_dir / "cluster.json"

    def kubeconfig(self, name: str) -> Path:
        return self.run_dir / f"{name}.kubeconfig"

    def make(self) -> None:
        """Create the directories that do not exist."""
        self.run_dir.mkdir(parents=True, exist_ok=True)
        for directory in (self.logs, self.agent_drop_ins, self.manifests):
            directory.mkdir(exist_ok=True)
        for private in (self.pki, self.agent_root, self.store):
            private.mkdir(mode=0o700, exist_ok=True)

    def write_agent_files(self, *, with_demo: bool, pod_api_server: str = "") -> None:
        """Write the agent's main configuration, and on the first start a demonstration pod.

        `pod_api_server` is the URL of the API server for pods in networks of their own.
        """
        lead = f"podAPIServer: {json.dumps(pod_api_server)}\n" if pod_api_server else ""
        self.agent_config.write_text(
            "# Written at every start; put your own settings into nodeagent.conf.d/*.conf.\n"
            f"apiVersion: {names.AGENT_CONFIG_API_VERSION}\n"
            f"kind: {names.AGENT_CONFIG_KIND}\n"
            f"staticPodPath: {json.dumps(str(self.manifests))}\n"
            f"podLogsDir: {json.dumps(str(self.logs / 'pods'))}\n"
            f"{lead}"
        )
        self.agent_config.chmod(0o600)  # as doctor advises
        first_start = not any(self.manifests.iterdir())
        if with_demo and first_start:
            demo = resources.files("orch.up").joinpath("demo.yaml").read_text()
            (self.manifests / "demo.yaml").write_text(demo)


@dataclass(frozen=True, slots=True)
class Certificates:
    ca_file: str
    apiserver: KeyPair
    proxy: KeyPair  # the API server's, as a client of the node agent
    nodeagent: KeyPair  # serving
    node: KeyPair
    controller: KeyPair
    controller_serving: KeyPair
    admin: KeyPair
    monitoring: KeyPair
    service_account: KeyPair  # its key signs the tokens of service accounts


def issue_certificates(
    directory: Path, node: str, *, now: datetime, host_address: str = ""
) -> Certificates:
    """A certificate for every program and user of the cluster, created or reused.

    The API server also serves at `host_address`, unless it is "".
    """
    authority = Authority(directory, now=now)
    local = ("localhost", "127.0.0.1", "::1")
    served = (*local, host_address) if host_address else local

    def client(file_name: str, user: str, *groups: str) -> KeyPair:
        return authority.issue(Subject(file_name, user, groups))

    return Certificates(
        ca_file=authority.ca_file,
        apiserver=authority.issue(Subject("apiserver", "orch-apiserver", (), served)),
        proxy=client("apiserver-nodeagent-client", names.USER_APISERVER),
        nodeagent=authority.issue(Subject("nodeagent", node, (), (node, *local))),
        node=client("node", f"{names.USER_NODE_PREFIX}{node}", names.GROUP_NODES),
        controller=client("controller-manager", names.USER_CONTROLLER_MANAGER),
        controller_serving=authority.issue(
            Subject("controller-manager-serving", "orch-controller-manager", (), local)
        ),
        admin=client("admin", "admin", names.GROUP_MASTERS),
        monitoring=client("monitoring", "prometheus", names.GROUP_MONITORING),
        service_account=authority.issue(Subject("service-account", "service-account")),
    )
