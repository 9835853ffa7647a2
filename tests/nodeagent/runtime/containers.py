"""A container that runs, for tests of the adapter."""

from __future__ import annotations

from nodeagent.runtime.base import ContainerSpec, SandboxSpec
from nodeagent.runtime.cri import CriRuntime

SANDBOX = SandboxSpec(name="web", namespace="shop", uid="u1")
CONTAINER = ContainerSpec(name="app", attempt=0, image="localhost/busybox:1")


async def a_running_container(runtime: CriRuntime) -> str:
    sandbox_id = await runtime.run_sandbox(SANDBOX)
    container_id = await runtime.create_container(sandbox_id, CONTAINER, SANDBOX)
    await runtime.start_container(container_id)
    return container_id
