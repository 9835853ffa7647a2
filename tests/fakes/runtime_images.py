"""The image half of the fake runtime, and what it claims to have measured."""

from __future__ import annotations

from collections.abc import Sequence

from nodeagent.psi import Pressure, PressureLine
from nodeagent.runtime.base import (
    Container,
    ContainerUsage,
    FilesystemUsage,
    Image,
    InterfaceUsage,
    Login,
    RuntimeCallError,
    Sandbox,
    SandboxUsage,
)
from tests.fakes.runtime_faults import CallFaults, changing

IMAGES = ("localhost/busybox:1", "localhost/pause:1")
EPOCH_NS = 1_700_000_000_000_000_000


class FakeImages(CallFaults):
    """Images known by reference; `images_to_pull` are those a registry would have."""

    def __init__(self) -> None:
        super().__init__()
        self.images_known = {name: fake_image(name) for name in IMAGES}
        self.images_to_pull: set[str] = set()
        self.wanted: dict[str, Login] = {}  # what the registry asks for, by reference
        self.logins: list[Login | None] = []  # of every pull

    async def image(self, reference: str) -> Image | None:
        await self.begin("image", reference)
        return self.images_known.get(reference)

    async def images(self) -> Sequence[Image]:
        await self.begin("images")
        return tuple(self.images_known.values())

    async def pull_image(self, reference: str, login: Login | None = None) -> str:
        self.logins.append(login)
        await self.begin("pull_image", reference)
        if reference in self.wanted and login != self.wanted[reference]:
            raise RuntimeCallError("pull_image", f'failed to pull image "{reference}": 401')
        if reference not in self.images_known:
            if reference not in self.images_to_pull:
                raise RuntimeCallError("pull_image", f'failed to pull image "{reference}"')
            self.images_known[reference] = fake_image(reference)
        return self.images_known[reference].id

    @changing
    async def remove_image(self, reference: str) -> None:
        await self.begin("remove_image", reference)
        self.images_known.pop(reference, None)

    async def image_filesystems(self) -> Sequence[FilesystemUsage]:
        await self.begin("image_filesystems")
        return (FilesystemUsage("/var/lib/fake", 409_600, 100, EPOCH_NS),)


def fake_image(reference: str) -> Image:
    return Image(id=f"sha256:{reference.encode().hex():0>64}", tags=(reference,), size_bytes=4096)


def fake_usage(container: Container | Sandbox) -> ContainerUsage:
    """Plausible numbers, different in every field."""
    line = PressureLine(avg10=1.5, avg60=0.5, avg300=0.25, total_usec=1234)
    return ContainerUsage(
        id=container.id,
        name=container.name,
        labels=container.labels,
        cpu_usage_core_ns=5_000_000,
        cpu_timestamp_ns=EPOCH_NS,
        memory_working_set_bytes=1_000_000,
        memory_usage_bytes=2_000_000,
        writable_layer_used_bytes=8192 if isinstance(container, Container) else None,
        writable_layer_inodes_used=2 if isinstance(container, Container) else None,
        writable_layer_timestamp_ns=EPOCH_NS if isinstance(container, Container) else 0,
        cpu_usage_nano_cores=250_000,
        memory_timestamp_ns=EPOCH_NS + 1,
        memory_available_bytes=3_000_000,
        memory_rss_bytes=500_000,
        page_faults=70,
        major_page_faults=7,
        cpu_pressure=Pressure(some=line, full=line),
        memory_pressure=Pressure(some=line, full=None),
    )


def fake_sandbox_usage(sandbox: Sandbox, containers: Sequence[Container]) -> SandboxUsage:
    return SandboxUsage(
        namespace=sandbox.namespace,
        uid=sandbox.uid,
        total=fake_usage(sandbox),
        network_timestamp_ns=EPOCH_NS,
        interfaces=(InterfaceUsage("eth0", 100, 0, 200, 0),),
        process_count=len(containers) + 1,
        containers=tuple(fake_usage(container) for container in containers),
    )
