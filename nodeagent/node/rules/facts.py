"""The measured input of the node object, as frozen values; pure.

`None` means "not measured". `node.collector` fills them; what is fixed at start is in `settings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeagent.node.rules.contention import StallShare
from nodeagent.pods.devices.inventory import ResourceCount
from nodeagent.runtime.isolation import RuntimeFeatures
from nodeagent.runtime.verdict import RuntimeHealth


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """Constant while the machine runs."""

    cpu_count: int
    memory_bytes: int
    hostname: str
    architecture: str
    operating_system: str
    kernel_version: str = ""
    os_image: str = ""
    machine_id: str = ""
    system_uuid: str = ""
    boot_id: str = ""
    swap_bytes: int = 0
    hugepages_bytes: Mapping[int, int] = field(default_factory=dict)  # page size → all its pages


@dataclass(frozen=True, slots=True)
class FilesystemFacts:
    available_bytes: int | None = None
    capacity_bytes: int | None = None
    inodes_free: int | None = None
    inodes: int | None = None


@dataclass(frozen=True, slots=True)
class UsageFacts:
    """The latest sample, as far as the node object needs it."""

    memory_available_bytes: int | None = None
    memory_working_set_bytes: int | None = None
    node_fs: FilesystemFacts = FilesystemFacts()
    image_fs: FilesystemFacts = FilesystemFacts()
    pids_in_use: int | None = None
    pids_max: int | None = None
    checkpoint_excess_bytes: int | None = None  # above the limits of the store
    stalls: Mapping[str, StallShare] = field(default_factory=dict)  # by condition


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What device plugins list; `counts` is None until it is known which resources they have.

    `gone` are resources that had a plugin. `is_first`: no earlier agent has left word of plugins,
    so that what the node object says of extended resources is nobody's.
    """

    counts: Mapping[str, ResourceCount] | None = None
    gone: frozenset[str] = frozenset()
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class ImageFacts:
    names: tuple[str, ...]  # digests, then tags
    size_bytes: int


@dataclass(frozen=True, slots=True)
class AddressFacts:
    type: str  # InternalIP | Hostname
    address: str


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """`time_s` is the loop's clock, as in `runtime` and in pressure states."""

    time_s: float
    machine: MachineFacts
    usage: UsageFacts
    runtime: RuntimeHealth
    features: RuntimeFeatures | None = None  # of the runtime, None: not known
    images: tuple[ImageFacts, ...] = ()
    addresses: tuple[AddressFacts, ...] = ()
    devices: DeviceFacts = DeviceFacts()
    problems: tuple[str, ...] = ()  # other reasons not to be Ready: "node is shutting down"
