"""Files that show a pod's own fields."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from nodeagent.pods.spec import volume_files
from nodeagent.pods.spec.env import SpecError
from nodeagent.pods.spec.volume_files import VolumeFile
from nodeagent.pods.volumes import directories
from orch.wire.records.pods import Pod, Volume
from tests.fakes.pods import container_data, pod
from tests.fakes.podworld import PodWorld

RESOURCES = {
    "limits": {"cpu": "250m", "memory": "64Mi"},
    "requests": {"cpu": "100m", "memory": "1000001"},
}


def of(path: str) -> dict[str, Any]:
    return {"fieldRef": {"fieldPath": path}}


def described(*items: dict[str, Any], **fields: Any) -> Pod:
    meta = {"labels": {"b": 'say "hi"', "a": "1"}, "annotations": {"n": "two\nlines"}}
    volumes = [{"name": "info", "downwardAPI": {"items": list(items)}}]
    mounts = [{"name": "info", "mountPath": "/info"}]
    container = container_data("app", resources=RESOURCES, volumeMounts=mounts)
    return pod(container, metadata={**meta, **fields}, volumes=volumes)


def files_of(item: dict[str, Any], **more: Any) -> list[VolumeFile]:
    volume = Volume.from_wire({"name": "v", "downwardAPI": {"items": [item], **more}})
    return volume_files.files(described(), volume, {}, {})


ITEMS = [
    ({"path": "labels", **of("metadata.labels")}, 'a="1"\nb="say \\"hi\\""'),
    ({"path": "notes", **of("metadata.annotations")}, 'n="two\\nlines"'),
    ({"path": "name", **of("metadata.name")}, "web"),
    ({"path": "one", **of("metadata.labels['a']")}, "1"),
    (
        {"path": "cpu", "resourceFieldRef": {"resource": "limits.cpu", "containerName": "app"}},
        "1",
    ),
]


@pytest.mark.parametrize(("item", "content"), ITEMS)
def test_an_item_becomes_a_file(item: dict[str, Any], content: str) -> None:
    [file] = files_of(item, defaultMode=0o400)
    assert file == VolumeFile(item["path"], content.encode(), 0o400)


REFUSED = [
    ({"path": "../up", **of("metadata.name")}, "must be relative"),
    ({"path": "/abs", **of("metadata.name")}, "must be relative"),
    ({"path": "x"}, "neither fieldRef nor resourceFieldRef"),
    ({"path": "x", **of("metadata.managedFields")}, "not a field"),
    (
        {"path": "x", "resourceFieldRef": {"resource": "limits.cpu", "containerName": "no"}},
        "there is no container 'no'",
    ),
]


@pytest.mark.parametrize(("item", "text"), REFUSED)
def test_an_item_that_cannot_be_is_refused(item: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        files_of(item)


@pytest.mark.looptime
async def test_a_volume_follows_the_labels_of_its_running_pod(world: PodWorld) -> None:
    items = {"path": "sub/labels", **of("metadata.labels")}
    await world.start(described(items))
    await world.until(lambda: "app" in world.running())
    [mount] = [m for m in world.made("app").spec.mounts if m.container_path == "/info"]
    file = Path(mount.host_path, "sub/labels")
    assert file.read_text().startswith('a="1"')
    before = world.running()
    world.source.set(described(items, labels={"a": "2"}))
    await world.until(lambda: file.read_text() == 'a="2"')
    assert world.running() == before
    world.source.set()
    await world.until(lambda: not world.traces())


@pytest.mark.looptime
async def test_labels_that_a_full_disk_kept_from_a_volume_come_as_soon_as_there_is_room(
    world: PodWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    items = {"path": "labels", **of("metadata.labels")}
    await world.start(described(items))
    await world.until(lambda: "app" in world.running())
    [mount] = [m for m in world.made("app").spec.mounts if m.container_path == "/info"]
    file = Path(mount.host_path, "labels")

    def fails(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(directories, "make", fails)
        world.source.set(described(items, labels={"a": "2"}))
        await asyncio.sleep(200)
        assert 'a="2"' not in file.read_text()
        assert caplog.text.count("cannot update the files of its volumes") == 1
    await world.until(lambda: file.read_text() == 'a="2"', within_s=70)


@pytest.mark.looptime
async def test_a_variable_can_hold_an_amount(world: PodWorld) -> None:
    reference = {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}
    variable = {"name": "LIMIT", "valueFrom": reference}
    await world.start(pod(container_data("app", resources=RESOURCES, env=[variable])))
    await world.until(lambda: "app" in world.running())
    assert world.made("app").spec.env == (("LIMIT", "64"),)
