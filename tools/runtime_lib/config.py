"""The names, paths and configuration files of an instance; no I/O.

Everything is derived from the instance's directory, so that the leftovers of a crashed run can be
found without any record.
"""

import dataclasses
import hashlib
import ipaddress
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from . import images, namespace

BRIDGE_PREFIX = "nart"
SOCKET_PATH_LIMIT = 107  # sun_path of unix(7), without its final NUL
_LONGEST_SOCKET = "containerd.sock.ttrpc"
# Snapshotters and services that would only be probed, and would make directories outside DIR.
_DISABLED = (
    "io.containerd.grpc.v1.sandbox-controllers.none",
    "io.containerd.internal.v1.opt",
    "io.containerd.internal.v1.tracing",
    "io.containerd.nri.v1.nri",
    "io.containerd.snapshotter.v1.blockfile",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.erofs",
    "io.containerd.snapshotter.v1.zfs",
    "io.containerd.tracing.processor.v1.otlp",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """The names and places of the instance in `directory`, an absolute path."""

    directory: Path

    @property
    def identity(self) -> str:
        """Eight hexadecimal digits that stand for this directory."""
        return hashlib.sha256(str(self.directory).encode()).hexdigest()[:8]

    @property
    def marker(self) -> str:
        """The name of the instance's own tmpfs; seen in the mount tables of its processes."""
        return f"nodeagent-rt-{self.identity}"

    @property
    def bridge(self) -> str:
        """The name of the bridge (interface names have at most 15 characters)."""
        return f"{BRIDGE_PREFIX}{self.identity}"

    @property
    def run(self) -> Path:
        """Where the socket is: below the directory, or in /run when that path is too long."""
        beside = self.directory / "run"
        fits = len(str(beside / _LONGEST_SOCKET)) <= SOCKET_PATH_LIMIT
        return beside if fits else Path("/run") / self.marker

    @property
    def socket(self) -> Path:
        """The socket of containerd, which serves CRI."""
        return self.run / "containerd.sock"

    @property
    def endpoint(self) -> str:
        """The socket as CRI clients want it."""
        return f"unix://{self.socket}"

    @property
    def record(self) -> Path:
        """What `up` wrote down about the instance."""
        return self.directory / "instance.json"

    @property
    def log(self) -> Path:
        """What containerd says."""
        return self.directory / "log" / "containerd.log"

    @property
    def containerd_config(self) -> Path:
        """The configuration file of containerd."""
        return self.directory / "config.toml"

    @property
    def root(self) -> Path:
        """What containerd keeps: images, snapshots, its database.

        The name makes the root of every container recognisable in the container's mount table.
        """
        return self.directory / self.marker

    @property
    def state(self) -> Path:
        """What containerd keeps while containers run."""
        return self.directory / "state"

    @property
    def temporary(self) -> Path:
        """Where containerd puts unfinished work; a failed checkpoint stays there."""
        return self.directory / "tmp"

    @property
    def registries(self) -> Path:
        """Where containerd is told of registries: `HOST:PORT/hosts.toml`, read at each pull."""
        return self.directory / "registries"

    @property
    def cni(self) -> Path:
        """The network configuration and the addresses given out."""
        return self.directory / "cni"


def containerd_toml(layout: Layout, snapshotter: str) -> str:
    """Render the configuration of containerd (version 3, containerd >= 2.0)."""
    q = json.dumps  # a JSON string is a TOML basic string
    disabled = ",\n".join(f"  {q(name)}" for name in _DISABLED)
    return f"""\
version = 3
root = {q(str(layout.root))}
state = {q(str(layout.state))}
disabled_plugins = [
{disabled},
]

[grpc]
  address = {q(str(layout.socket))}

[debug]
  level = "info"

[plugins."io.containerd.cri.v1.images"]
  snapshotter = {q(snapshotter)}

[plugins."io.containerd.cri.v1.images".registry]
  config_path = {q(str(layout.registries))}

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = {q(images.PAUSE)}

[plugins."io.containerd.cri.v1.runtime"]
  # Without CAP_SYS_RESOURCE no process can lower its oom_score_adj, and runc would die trying.
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true

[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["/usr/lib/cni"]
  conf_dir = {q(str(layout.cni / "conf"))}

[plugins."io.containerd.cri.v1.runtime".containerd]
  default_runtime_name = "runc"
{_runtime("runc")}{_runtime("crun")}"""


def _runtime(name: str) -> str:
    table = f'plugins."io.containerd.cri.v1.runtime".containerd.runtimes.{name}'
    return f"""
[{table}]
  runtime_type = "io.containerd.runc.v2"

[{table}.options]
  BinaryName = "/usr/{"sbin" if name == "runc" else "bin"}/{name}"
  Root = "{namespace.PRIVATE_RUN}/{name}"
  SystemdCgroup = false
"""


def cni_conflist(
    layout: Layout, subnet: ipaddress.IPv4Network, *, mtu: int, host_ports: bool
) -> str:
    """Render the pod network: a bridge of the instance's own, addresses, and host ports."""
    bridge = {
        "type": "bridge",
        "bridge": layout.bridge,
        "isGateway": True,
        "hairpinMode": True,
        "mtu": mtu,
        "ipam": {
            "type": "host-local",
            "dataDir": str(layout.cni / "addresses"),
            "ranges": [[{"subnet": str(subnet)}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    portmap = {"type": "portmap", "backend": "nftables", "capabilities": {"portMappings": True}}
    plugins = [bridge, portmap] if host_ports else [bridge]
    document = {"cniVersion": "1.0.0", "name": layout.marker, "plugins": plugins}
    return json.dumps(document, indent=1) + "\n"


def masquerade_nft(layout: Layout, subnet: ipaddress.IPv4Network) -> str:
    """Render the table that lets pods reach what the host reaches; removed as a whole."""
    return f"""\
table ip {layout.bridge} {{
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {subnet} ip daddr != {subnet} masquerade
  }}
}}
"""


def choose_subnet(
    layout: Layout, taken: Iterable[ipaddress.IPv4Network]
) -> ipaddress.IPv4Network | None:
    """Pick a /24 of 10.0.0.0/8 that overlaps with none of `taken`; None when all do.

    The search starts at a place that depends on the instance, so that its subnet seldom changes.
    """
    used = list(taken)
    start = int(layout.identity, 16)
    for offset in range(1 << 16):
        number = (start + offset) % (1 << 16)
        subnet = ipaddress.IPv4Network((10 << 24 | number << 8, 24))
        if not any(subnet.overlaps(other) for other in used):
            return subnet
    return None


def routed_subnets(routes: Iterable[Mapping[str, object]]) -> list[ipaddress.IPv4Network]:
    """Read the destinations from what `ip -j route` reports, the default route left out."""
    destinations = [str(route.get("dst", "default")) for route in routes]
    return [ipaddress.IPv4Network(dst, strict=False) for dst in destinations if dst != "default"]
