"""Where a local cluster keeps everything: the contract of RUN_DIR."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Layout:
    run_dir: Path  # absolute

    @property
    def pki(self) -> Path:
        return self.run_dir / "pki"

    @property
    def logs(self) -> Path:
        return self.run_dir / "logs"

    @property
    def agent_root(self) -> Path:
        return self.run_dir / "nodeagent"

    @property
    def agent_config(self) -> Path:
        return self.run_dir / "nodeagent.conf"

    @property
    def agent_drop_ins(self) -> Path:
        return self.run_dir / "nodeagent.conf.d"

    @property
    def manifests(self) -> Path:
        return self.run_dir / "manifests"

    @property
    def runtime(self) -> Path:
        return self.run_dir / "runtime"

    @property
    def store(self) -> Path:
        return self.run_dir / "apiserver"

    @property
    def cluster_file(self) -> Path:
        return self.run_dir / "cluster.json"

    def kubeconfig(self, name: str) -> Path:
        return self.run_dir / f"{name}.kubeconfig"

    def port_file(self, name: str) -> Path:
        return self.run_dir / f"{name}.port"

    def make(self) -> None:
        """Create the directories; what exists is kept."""
        self.run_dir.mkdir(parents=True, exist_ok=True)
        for directory in (self.logs, self.agent_drop_ins, self.manifests):
            directory.mkdir(exist_ok=True)
        for private in (self.pki, self.agent_root, self.store):
            private.mkdir(mode=0o700, exist_ok=True)
