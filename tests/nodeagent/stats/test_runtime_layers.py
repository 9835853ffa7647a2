"""The runtime's figures of disks, and which of them stay when it does not answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodeagent.runtime.base import ContainerUsage, FilesystemUsage, RuntimeUnavailable
from nodeagent.stats.runtime import RuntimeDiskLoop, RuntimeDisks
from nodeagent.stats.samples import FsSample


class Runtime:
    """The two calls that matter here."""

    def __init__(self) -> None:
        self.fails = False
        self.asked: list[str] = []
        self.more: tuple[str, ...] = ()  # containers with a layer, beside c1

    async def image_filesystems(self) -> list[FilesystemUsage]:
        if self.fails:
            raise RuntimeUnavailable("ImageFsInfo", "no such socket")
        return [FilesystemUsage("/var/lib/containerd", 1000, 10, 5)]

    async def container_usage(self, container_id: str = "") -> list[ContainerUsage]:
        if self.fails:
            raise RuntimeUnavailable("ListContainerStats", "no such socket")
        self.asked.append(container_id)
        first, *others = self._usage()
        usage = [first, *others, *(replace(first, id=each) for each in self.more)]
        return [one for one in usage if container_id in ("", one.id)]

    def _usage(self) -> list[ContainerUsage]:
        known = {"memory_working_set_bytes": None, "memory_usage_bytes": None}
        return [
            ContainerUsage(
                "c1",
                "web",
                {},
                1,
                77,
                **known,
                writable_layer_used_bytes=300,
                writable_layer_inodes_used=3,
                writable_layer_timestamp_ns=76,
            ),
            ContainerUsage(
                "c2",
                "new",
                {},
                1,
                77,
                **known,
                writable_layer_used_bytes=None,
                writable_layer_inodes_used=None,
            ),
        ]


async def test_layers_are_known_by_container_id() -> None:
    loop = RuntimeDiskLoop(Runtime())  # type: ignore[arg-type]
    assert loop.latest == RuntimeDisks()
    await loop.step()
    assert loop.latest.image_fs and loop.latest.image_fs.used_bytes == 1000
    assert loop.latest.writable_layers == {"c1": FsSample(76, used_bytes=300, inodes_used=3)}


async def test_when_the_runtime_does_not_answer_the_last_values_remain_and_it_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runtime = Runtime()
    loop = RuntimeDiskLoop(runtime)  # type: ignore[arg-type]
    await loop.step()
    known, runtime.fails = loop.latest, True
    await loop.step()
    await loop.step()
    assert loop.latest is known
    assert len(caplog.records) == 1 and "no such socket" in caplog.text


async def test_new_layers_are_queried_alone_and_join_the_others() -> None:
    runtime = Runtime()
    loop = RuntimeDiskLoop(runtime)  # type: ignore[arg-type]
    await loop.step()
    before, runtime.more = loop.latest, ("c3",)
    await loop.step_new(["c2", "c3", "gone"])
    assert runtime.asked == ["", "c2", "c3", "gone"]
    assert loop.latest.image_fs is before.image_fs
    assert loop.latest.writable_layers == dict.fromkeys(("c1", "c3"), before.writable_layers["c1"])


async def test_many_new_layers_are_queried_by_one_list_call() -> None:
    runtime = Runtime()
    runtime.more = tuple(f"n{number}" for number in range(9))
    loop = RuntimeDiskLoop(runtime)  # type: ignore[arg-type]
    await loop.step_new(runtime.more)
    assert runtime.asked == [""]
    assert set(runtime.more) < loop.latest.writable_layers.keys()


async def test_a_failed_query_of_new_layers_is_the_outage_already_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runtime = Runtime()
    loop = RuntimeDiskLoop(runtime)  # type: ignore[arg-type]
    await loop.step()
    known, runtime.fails = loop.latest, True
    await loop.step_new(["c3"])
    await loop.step()
    assert loop.latest is known
    assert len(caplog.records) == 1 and "no such socket" in caplog.text
