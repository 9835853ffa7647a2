"""A private containerd: its directory, its record, its processes, its status."""

import dataclasses
import ipaddress
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import base as basis
from . import config, cri, images, namespace, processes
from .progress import RuntimeToolError, run

_REFUSED_IN_PATHS = frozenset(":,\\\"' \n")  # mean something in mount options or mount tables


@dataclasses.dataclass(frozen=True, slots=True)
class Instance:
    """The instance in `layout.directory`, run from the base filesystem `base`."""

    layout: config.Layout
    base: Path

    def living(self) -> list[processes.Process]:
        """List the instance's living processes."""
        return processes.of_instance(self.layout.marker)

    def daemon(self) -> processes.Process | None:
        """Return the instance's containerd when it runs."""
        wanted = str(self.layout.containerd_config)
        for process in self.living():
            if Path(process.command[0]).name == "containerd" and wanted in process.command:
                return process
        return None

    def holder(self) -> processes.Process | None:
        """Return the process that keeps the namespace, when it lives."""
        living = self.living()
        return next((p for p in living if tuple(p.command) == namespace.HOLDER), None)

    def run(self, command: Sequence[str], *, given: bytes = b"") -> str:
        """Run a command of the base, without the instance's namespace having to exist."""
        command = namespace.one_off(self.base, command)
        return run(command, env=namespace.environment(), given=given)

    def record(self) -> Mapping[str, str]:
        """Return what was written down; empty when there is nothing, or only half a file."""
        try:
            return dict(json.loads(self.layout.record.read_text()))
        except (FileNotFoundError, ValueError):
            return {}

    def write_record(self, **values: str) -> None:
        """Add to what is written down, in one step."""
        text = json.dumps(dict(self.record()) | values, indent=1, sort_keys=True)
        beside = self.layout.record.with_suffix(".new")
        beside.write_text(text + "\n")
        beside.replace(self.layout.record)

    def is_up(self) -> bool:
        """Tell whether it serves CRI and lacks nothing that `up` would add."""
        if self.record().get("state") != "up" or self.holder() is None:
            return False
        try:
            ready = not cri.not_ready(self.layout.socket)
            return ready and {images.BUSYBOX, images.PAUSE} <= cri.images(self.layout.socket).keys()
        except cri.CallFailed:
            return False

    def host_address(self) -> ipaddress.IPv4Address:
        """The address of the machine on the bridge, once the instance is up."""
        return ipaddress.IPv4Network(self.record()["subnet"])[1]

    def status(self) -> dict[str, object]:
        """Describe the instance: what runs, from what, and what it has."""
        up = self.is_up()
        living = self.living()
        daemon, holder = self.daemon(), self.holder()
        shims = [process.pid for process in living if "containerd-shim" in process.command[0]]
        return {
            "up": up,
            "endpoint": self.layout.endpoint,
            "pids": {
                "containerd": daemon.pid if daemon else None,
                "holder": holder.pid if holder else None,
                "shims": shims,
                "containers": [process.pid for process in living if not process.private],
            },
            "versions": basis.recorded_versions(self.base),
            "images": cri.images(self.layout.socket) if up else {},
            "subnet": self.record().get("subnet"),
            "bridge": self.layout.bridge,
            "base": str(self.base),
            "log": str(self.layout.log),
        }


def find(directory: Path, base: Path | None) -> Instance:
    """Return the instance of `directory`; its base is `base`, or the one it was started from."""
    directory = directory.resolve()
    instance = Instance(layout=config.Layout(directory), base=directory / "base")
    recorded = Path(instance.record().get("base", instance.base))
    instance = dataclasses.replace(instance, base=base.resolve() if base else recorded)
    for path in (directory, instance.base):
        if _REFUSED_IN_PATHS & set(str(path)):
            raise RuntimeToolError(f"choose a directory without blanks and punctuation: {path}")
    return instance
