"""Faults in the middle of a real checkpoint: a full disk, a runtime that hangs, much memory."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nodeagent import freezer
from nodeagent.runtime import base
from orch.wire.errors import ApiError
from tests.conftest_runtime import RealRuntime, provisioned
from tests.nodeagent.test_checkpoint_real import (
    COUNTER,
    COUNTING,
    RealNode,
    a_real_node,
    wait_for_change,
)
from tools.bench import checkpoint as bench

MIB = 1 << 20


async def count_of(node: RealNode) -> Path:
    """Where the container counts, as this host sees it."""
    detail = await node.runtime.container_detail(node.pods.running["app"])
    return Path(f"/proc/{detail.pid}/root/count")


@pytest.fixture
def small_disk(real_runtime: RealRuntime, tmp_path: Path) -> Iterator[Path]:
    """A directory with room for half an archive; the runtime sees it too."""
    path = tmp_path / "small"
    path.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128k,mode=0750", "ckpt-test", str(path)],
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode != 0:
        pytest.skip(f"no small file system can be mounted: {done.stderr.strip()}")
    yield path
    subprocess.run(["umount", str(path)], check=True)


@pytest.mark.real
async def test_a_full_disk_costs_the_archive_alone(
    real_runtime: RealRuntime, small_disk: Path
) -> None:
    async with a_real_node(real_runtime.endpoint, small_disk) as node:
        with pytest.raises(ApiError) as caught:
            await node.service().checkpoint("shop", "web", "app")

        assert caught.value.code == 500
        assert "no space left on device" in caught.value.message.lower()
        assert os.listdir(small_disk / "checkpoints") == []
        await asyncio.to_thread(wait_for_change, await count_of(node))


@pytest.mark.real
async def test_a_runtime_that_hangs_in_the_middle_keeps_no_container_frozen(
    tmp_path: Path,
) -> None:
    root = tmp_path / "agent"
    with provisioned(tmp_path / "rt") as real:
        pid = json.loads(real.control("status"))["pids"]["containerd"]
        async with a_real_node(real.endpoint, root) as node:
            count = await count_of(node)
            for _ in range(20):  # for a checkpoint that is not over before it was seen
                going = asyncio.ensure_future(
                    node.service(timeout_s=2, patience_s=2).checkpoint("shop", "web", "app")
                )
                stop = partial(os.kill, pid, signal.SIGSTOP)
                if await asyncio.to_thread(once_frozen, node.pods.running["app"], going, stop):
                    break
                await going
                shutil.rmtree(root / "checkpoints")
            try:
                with pytest.raises(ApiError) as caught:
                    await going
                await asyncio.to_thread(wait_for_change, count)
            finally:
                os.kill(pid, signal.SIGCONT)
            assert caught.value.code == 500
            assert "code = DeadlineExceeded" in caught.value.message
            assert [n for n in os.listdir(root / "checkpoints") if not n.startswith(".")] == []
            path = await eventually_checkpointed(node)
            assert sorted(os.listdir(root / "checkpoints")) == [path.name, f"{path.name}.json"]
            await asyncio.to_thread(wait_for_change, count)


@pytest.mark.real
async def test_a_process_for_which_criu_waits_in_vain_keeps_no_container_frozen(
    real_runtime: RealRuntime, tmp_path: Path
) -> None:
    """A stopped one. As CRIU was ended it froze again what had just been resumed, for good."""
    command = ("sh", "-c", f"sleep 1000 & kill -STOP $!; {COUNTING}")
    spec = replace(COUNTER, command=command)
    async with a_real_node(real_runtime.endpoint, tmp_path, spec) as node:
        assert await node.counts_on()
        for _ in range(3):
            with pytest.raises(ApiError, match="DeadlineExceeded"):
                await node.service(timeout_s=1).checkpoint("shop", "web", "app")
            assert await node.counts_on()
            await asyncio.sleep(0.5)
            assert not freezer.is_frozen(freezer.CGROUP_ROOT, node.pods.running["app"])


def once_frozen(
    container_id: str, checkpoint: asyncio.Future[Any], act: Callable[[], object]
) -> bool:
    """Act in the moment in which the container is frozen; False when that was never seen.

    Blocking: a loop that others keep busy would look too seldom.
    """
    while not checkpoint.done():
        if freezer.is_frozen(freezer.CGROUP_ROOT, container_id):
            act()
            return True
        time.sleep(0.001)
    return False


async def eventually_checkpointed(node: RealNode) -> Path:
    """A runtime that hung has to end what it had begun first."""
    for _ in range(50):
        try:
            return Path(await node.service().checkpoint("shop", "web", "app"))
        except ApiError:
            await asyncio.sleep(0.2)
    raise AssertionError("no checkpoint was made after the runtime went on")


@pytest.mark.real
async def test_much_memory_costs_the_agent_none_and_the_container_counts_on(
    real_runtime: RealRuntime, tmp_path: Path
) -> None:
    try:
        bench.compile_counter(tmp_path / "bin")
    except bench.NoCompiler as error:
        pytest.skip(str(error))
    spec = base.ContainerSpec(
        "app", 0, "localhost/busybox:1", command=("/bench/counter", "96"),
        mounts=(base.Mount(str(tmp_path / "bin"), "/bench", readonly=True),),
    )  # fmt: skip
    async with a_real_node(real_runtime.endpoint, tmp_path, spec) as node:
        count = await count_of(node)
        await asyncio.to_thread(counted, count)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        path = Path(await node.service().checkpoint("shop", "web", "app"))
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before

        assert path.stat().st_size > 96 * MIB
        assert grown < 24 * MIB
        await asyncio.to_thread(wait_for_change, count)
        shutil.rmtree(path.parent)


def counted(path: Path) -> None:
    bench.eventually(path.exists, within_s=30, what=f"{path} is there")
