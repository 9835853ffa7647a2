"""The file /etc/hosts of a pod: its own name, and the names of `hostAliases`.

The containers of a pod share one file, `<root>/pods/<uid>/etc-hosts`, which is put right whenever
one of them is made and which they may change (reference agent, `managedHostsFileContent`). What
they add beyond a bound is cut off with their termination messages. A pod in the host's network gets
a copy of the node's file.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from nodeagent import descriptors
from nodeagent.pods.spec import spec
from nodeagent.pods.spec.env import SpecError
from nodeagent.pods.volumes import directories
from nodeagent.runtime.base import Mount
from orch.component.process import loops
from orch.wire import validation
from orch.wire.records.pods import Pod

PATH = "/etc/hosts"
FILE = "etc-hosts"  # in the directory of the pod
MAX_BYTES = 2 << 20  # more than the aliases that fit into an object of the API

_MANAGED = "# Kubernetes-managed hosts file"  # clients look for these words
_LOCAL = (
    "127.0.0.1\tlocalhost",
    "::1\tlocalhost ip6-localhost ip6-loopback",
    "fe00::0\tip6-localnet",
    "fe00::0\tip6-mcastprefix",
    "fe00::1\tip6-allnodes",
    "fe00::2\tip6-allrouters",
)


def content(pod: Pod, addresses: Sequence[str], node_hosts: str = "") -> str:
    """The text for a pod with these addresses; `node_hosts` counts in the host's network only.

    SpecError for an alias that is no address or no name.
    """
    if pod.spec.hostNetwork:
        lines = [f"{_MANAGED} (host network).", node_hosts.rstrip("\n")]
    else:
        named = (f"{address}\t{spec.hostname(pod)}" for address in addresses)
        lines = [f"{_MANAGED}.", *_LOCAL, *named]
    if aliases := list(_aliases(pod)):
        lines += ["", "# Entries added by HostAliases.", *aliases]
    return "\n".join(lines) + "\n"


def _aliases(pod: Pod) -> Iterator[str]:
    for number, alias in enumerate(pod.spec.hostAliases or ()):
        where = f"spec.hostAliases[{number}]"
        if validation.address_problems(alias.ip):
            raise SpecError(f"{where}.ip: {alias.ip!r} is not an IP address")
        for name in alias.hostnames or ():
            if not validation.is_dns1123_subdomain(name):
                raise SpecError(f"{where}.hostnames: {name!r} is not a DNS name")
        if alias.hostnames:
            names = "\t".join(alias.hostnames)
            yield f"{alias.ip}\t{names}"


class HostsFiles:
    """`root_dir` is the agent's; `node_file` is the node's own file."""

    def __init__(self, root_dir: str, node_file: str = PATH) -> None:
        self._pods = Path(root_dir) / "pods"
        self._node_file = node_file

    async def mounts(self, pod: Pod, addresses: Sequence[str]) -> tuple[Mount, ...]:
        """The mount for a container; none while the pod has no address. SpecError, OSError."""
        if not addresses and not pod.spec.hostNetwork:
            return ()
        path = self._pods / (pod.metadata.uid or "") / FILE
        write = functools.partial(self._write, path, pod, addresses)
        await loops.finish_in_thread(write, name=f"hosts of {pod.key}")
        return (Mount(str(path), PATH),)

    def _write(self, path: Path, pod: Pod, addresses: Sequence[str]) -> None:
        node_hosts = _read(self._node_file) if pod.spec.hostNetwork else ""
        data = content(pod, addresses, node_hosts).encode()
        directories.make(path.parent)
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(opened, "r+b") as file:  # the same file: other containers have it mounted
            if file.read(len(data) + 1) != data:
                file.seek(0)
                file.write(data)
                file.truncate()
            os.fchmod(file.fileno(), 0o644)


def _read(path: str) -> str:
    try:
        with os.fdopen(descriptors.open_file(path), "rb") as file:
            return file.read(MAX_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return ""
