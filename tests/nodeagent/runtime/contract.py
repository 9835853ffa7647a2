"""The parts of the contract suite: a `ContainerRuntime`, however made, and containers in it."""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nodeagent.runtime import base
from nodeagent.runtime.base import ContainerRuntime, ContainerSpec, ExecResult, SandboxSpec
from tests.conftest_runtime import remove_pod_cgroups
from tests.fakes.runtime import FakeRuntime

IMAGE = "localhost/busybox:1"
UNTIL_TOLD = "while [ ! -e /exit ]; do sleep 0.05; done; exit $(cat /exit)"
SPEECH = ("sh", "-c", "echo out; echo err >&2; exit 3")


@dataclass
class Subject:
    """A runtime under test; `fake` is what stands behind it, None behind a real one."""

    runtime: ContainerRuntime
    fake: FakeRuntime | None
    logs: Path
    parents: list[str] = field(default_factory=list)
    sandboxes: list[str] = field(default_factory=list)

    def sandbox_spec(self, **changes: object) -> SandboxSpec:
        uid = str(uuid.uuid4())
        self.parents.append(f"/orchpods/pod{uid}")
        spec = SandboxSpec(
            name="web",
            namespace="contract",
            uid=uid,
            log_directory=str(self.logs / uid),
            cgroup_parent=self.parents[-1],
            labels={"orch.io/pod.uid": uid},
            annotations={"note": "kept"},
        )
        return dataclasses.replace(spec, **changes)  # type: ignore[arg-type]

    async def sandbox(self, spec: SandboxSpec) -> str:
        sandbox_id = await self.runtime.run_sandbox(spec)
        self.sandboxes.append(sandbox_id)
        return sandbox_id

    async def container(self, name: str = "app") -> str:
        """A created container in a sandbox of its own."""
        spec = self.sandbox_spec()
        sandbox_id = await self.sandbox(spec)
        return await self.runtime.create_container(sandbox_id, container_spec(name), spec)

    async def running(self) -> str:
        container_id = await self.container()
        await self.runtime.start_container(container_id)
        return container_id

    async def end(self, container_id: str, code: int) -> base.ContainerDetail:
        """Let the container's process end by itself with `code`."""
        if self.fake:
            self.fake.exit(container_id, code)
        else:
            told = ("sh", "-c", f"echo {code} > /exit.new; mv /exit.new /exit")
            await self.runtime.exec_sync(container_id, told, timeout_s=30)
        for _ in range(1500):
            detail = await self.runtime.container_detail(container_id)
            if detail.container.state is base.ContainerState.EXITED:
                return detail
            await asyncio.sleep(0.02)
        raise AssertionError(f"the container did not end: {detail}")

    async def clean(self) -> None:
        for sandbox_id in self.sandboxes:
            await self.runtime.stop_sandbox(sandbox_id)
            await self.runtime.remove_sandbox(sandbox_id)
        for parent in self.parents:
            remove_pod_cgroups(parent)


def container_spec(name: str = "app", **changes: object) -> ContainerSpec:
    spec = ContainerSpec(
        name=name,
        attempt=0,
        image=IMAGE,
        command=("sh", "-c", UNTIL_TOLD),
        log_path=f"{name}.log",
        labels={"orch.io/container.name": name},
        annotations={"orch.io/container.hash": "abc"},
    )
    return dataclasses.replace(spec, **changes)  # type: ignore[arg-type]


def fake_runtime() -> FakeRuntime:
    fake = FakeRuntime()

    def answer(_container_id: str, command: Sequence[str]) -> ExecResult:
        spoken = tuple(command) == SPEECH
        return ExecResult(3, b"out\n", b"err\n") if spoken else ExecResult(0, b"", b"")

    fake.on_exec = answer
    return fake
