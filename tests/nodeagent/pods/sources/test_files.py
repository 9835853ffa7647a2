"""Static pods from files, in a real directory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.pods.sources import files
from nodeagent.pods.sources.files import FileSource
from nodeagent.pods.sources.manifests import ManifestOrigin
from orch.component import yaml_file
from orch.component.process import loops
from orch.wire.records.pods import Pod

GOOD = """
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec: {containers: [{name: app, image: x%s}]}
"""


class Scanned:
    """A FileSource whose scans a test calls; `changes` counts those that found one."""

    def __init__(self, path: Path) -> None:
        self.changes = 0
        self.source = FileSource(str(path), "node1")

    async def scan(self, times: int = 1) -> list[str]:
        for _ in range(times):
            self.changes += await self.source.scan()
        return [pod.metadata.name for pod in self.source.pods()]


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    path = tmp_path / "manifests"
    path.mkdir()
    return path


def write(directory: Path, name: str, pod: str = "", image: str = "") -> Path:
    path = directory / f"{name}.yaml"
    path.write_text(GOOD % (pod or name, image))
    return path


async def test_every_manifest_is_a_pod_in_the_order_of_the_names(manifests: Path) -> None:
    for name in ("b", "a"):
        write(manifests, name)
    scanned = Scanned(manifests)
    assert not scanned.source.ready
    assert await scanned.scan() == ["a-node1", "b-node1"]
    assert scanned.source.ready
    assert scanned.changes == 1
    await scanned.scan(3)
    assert scanned.changes == 1


async def test_hidden_files_directories_and_dangling_links_are_passed_over(
    manifests: Path,
) -> None:
    write(manifests, ".hidden")
    (manifests / "sub").mkdir()
    write(manifests / "sub", "inner")
    (manifests / "dangling.yaml").symlink_to("nowhere")
    assert await Scanned(manifests).scan() == []


async def test_a_single_file_is_a_source_too(manifests: Path) -> None:
    path = write(manifests, "a")
    write(manifests, "b")
    assert await Scanned(path).scan() == ["a-node1"]


async def test_a_path_that_does_not_exist_yet_is_an_empty_source(tmp_path: Path) -> None:
    scanned = Scanned(tmp_path / "later")
    assert await scanned.scan() == []
    assert scanned.source.ready
    assert not scanned.source.incomplete
    (tmp_path / "later").mkdir()
    write(tmp_path / "later", "a")
    assert await scanned.scan(2) == ["a-node1"]


async def test_a_new_file_is_read_when_two_scans_agree_about_it(manifests: Path) -> None:
    scanned = Scanned(manifests)
    await scanned.scan()
    path = manifests / "a.yaml"
    path.write_text((GOOD % ("a", ""))[:30])
    assert await scanned.scan() == []
    path.write_text(GOOD % ("a", ""))
    assert await scanned.scan() == []
    assert await scanned.scan() == ["a-node1"]
    assert scanned.changes == 2


async def test_a_removed_file_takes_its_pod_with_it(manifests: Path) -> None:
    path = write(manifests, "a")
    scanned = Scanned(manifests)
    await scanned.scan()
    path.unlink()
    assert await scanned.scan() == []
    assert scanned.changes == 2


async def test_a_changed_file_is_another_pod(manifests: Path) -> None:
    write(manifests, "a")
    scanned = Scanned(manifests)
    await scanned.scan()
    before = scanned.source.pods()[0].metadata.uid
    write(manifests, "a", image="y")
    await scanned.scan(2)
    assert scanned.source.pods()[0].metadata.uid != before
    assert scanned.changes == 2


async def test_a_touched_file_is_no_change(manifests: Path) -> None:
    path = write(manifests, "a")
    scanned = Scanned(manifests)
    await scanned.scan()
    os.utime(path, (1, 1))
    await scanned.scan(3)
    assert scanned.changes == 1


async def test_a_file_that_turns_bad_keeps_its_pod_and_is_logged_once(
    manifests: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(manifests, "a")
    write(manifests, "b")
    scanned = Scanned(manifests)
    await scanned.scan()
    path.write_text("kind: [")
    assert await scanned.scan(5) == ["a-node1", "b-node1"]
    assert caplog.text.count("manifest ignored: ") == 1
    assert "its pod default/a-node1 stays as it was" in caplog.text
    assert not scanned.source.incomplete
    write(manifests, "a", image="new")
    assert await scanned.scan(2) == ["a-node1", "b-node1"]
    assert scanned.source.pods()[0].spec.containers[0].image == "xnew"


async def test_a_file_that_was_never_valid_makes_the_source_incomplete(
    manifests: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = manifests / "a.yaml"
    bad.write_text("a: 1\na: 2\n")
    write(manifests, "b")
    scanned = Scanned(manifests)
    assert await scanned.scan() == ["b-node1"]
    assert scanned.source.incomplete
    assert f"{bad}:2: a: the key is given twice" in caplog.text
    bad.unlink()
    await scanned.scan()
    assert not scanned.source.incomplete


async def test_a_change_is_found_that_keeps_size_and_time_of_modification(manifests: Path) -> None:
    path = write(manifests, "a", image="1")
    scanned = Scanned(manifests)
    await scanned.scan()
    status = path.stat()
    with path.open("r+") as stream:
        stream.write(GOOD % ("a", "2"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    await scanned.scan(2)
    assert scanned.source.pods()[0].spec.containers[0].image == "x2"


async def test_a_huge_file_is_refused(manifests: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (manifests / "a.yaml").open("wb") as stream:
        stream.truncate(10 * 2**20 + 1)
    assert await Scanned(manifests).scan() == []
    assert "larger than 10 MiB" in caplog.text


async def test_what_is_read_by_others_during_a_scan_is_whole_and_of_before(
    manifests: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        write(manifests, name)
    scanned = Scanned(manifests)
    await scanned.scan()
    seen: list[list[str]] = []
    real = files.parse_manifest

    def parse(content: bytes, origin: ManifestOrigin) -> Pod:
        seen.append([pod.metadata.name for pod in scanned.source.pods()])
        return real(content, origin)

    monkeypatch.setattr(files, "parse_manifest", parse)
    write(manifests, "b", image="new")
    await scanned.scan()
    (manifests / "a.yaml").unlink()
    assert await scanned.scan() == ["b-node1", "c-node1"]
    assert seen == [["a-node1", "b-node1", "c-node1"]]


async def test_a_fifo_does_not_hang_the_source(manifests: Path) -> None:
    os.mkfifo(manifests / "a.yaml")
    assert await Scanned(manifests).scan() == []


async def test_only_a_file_that_changed_or_could_not_be_read_is_read_again(
    manifests: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        write(manifests, name)
    read: list[str] = []
    real = yaml_file.read_content

    def content(path: Path) -> bytes:
        read.append(path.stem)
        if len(read) == 1:
            raise OSError(5, "Input/output error")
        return real(path)

    monkeypatch.setattr(yaml_file, "read_content", content)
    scanned = Scanned(manifests)
    assert await scanned.scan() == ["b-node1"]
    assert await scanned.scan(3) == ["a-node1", "b-node1"]
    write(manifests, "b", image="new")
    await scanned.scan(3)
    assert read == ["a", "b", "a", "b"]


async def test_a_content_that_is_known_is_not_parsed_again(
    manifests: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(manifests, "a")
    (manifests / "bad.yaml").write_text("a: 1")
    parsed: list[str] = []
    real = files.parse_manifest

    def parse(content: bytes, origin: ManifestOrigin) -> Pod:
        parsed.append(origin.place)
        return real(content, origin)

    monkeypatch.setattr(files, "parse_manifest", parse)
    scanned = Scanned(manifests)
    await scanned.scan(3)
    os.utime(path, (1, 1))
    assert await scanned.scan(3) == ["a-node1"]
    assert parsed == [str(path), str(manifests / "bad.yaml")]


class Running:
    """A FileSource at work; `scans` are the times of its scans."""

    def __init__(self, path: Path) -> None:
        self.changed = asyncio.Event()
        self.scans: list[float] = []
        self.source = FileSource(str(path), "node1")
        self._scan = self.source.scan
        self.source.scan = self._counted  # type: ignore[method-assign]
        self._task = loops.spawn(self.source.run(self.changed.set), name="source")

    async def _counted(self) -> bool:
        self.scans.append(asyncio.get_running_loop().time())
        return await self._scan()

    async def names(self) -> list[str]:
        """The pods after the next change."""
        async with asyncio.timeout(10):
            await self.changed.wait()
        self.changed.clear()
        return [pod.metadata.name for pod in self.source.pods()]

    async def stop(self) -> None:
        await loops.cancel(self._task)


async def test_a_source_at_rest_does_not_scan(manifests: Path) -> None:
    write(manifests, "a")
    running = Running(manifests)
    assert await running.names() == ["a-node1"]
    await asyncio.sleep(files.SCAN_INTERVAL_S * 2.5)
    assert len(running.scans) == 1
    await running.stop()


async def test_a_change_is_noticed_at_once_and_read_when_it_has_settled(manifests: Path) -> None:
    running = Running(manifests)
    assert await running.names() == []
    await asyncio.sleep(files.SCAN_INTERVAL_S * 1.2)
    began_s = asyncio.get_running_loop().time()
    write(manifests, "a")
    assert await running.names() == ["a-node1"]
    noticed_s, read_s = (time_s - began_s for time_s in running.scans[1:3])
    assert noticed_s < 5, "nothing else would notice it"
    assert read_s - noticed_s >= files.SCAN_INTERVAL_S * 0.9
    await running.stop()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("replace", "ends"),
    [
        (lambda path, other: (path.unlink(), other.rename(path)), True),
        (lambda path, other: (path.rename(path.parent.parent / "b"), other.rename(path)), True),
        (lambda path, other: other.rename(path), False),
        (lambda path, other: path.write_bytes(other.read_bytes()), False),
    ],
    ids=["removed", "moved away", "replaced in one step", "written again"],
)
async def test_a_manifest_taken_away_and_put_back_at_once_ends_its_pod_first(
    manifests: Path, replace: Callable[[Path, Path], object], ends: bool
) -> None:
    path = write(manifests, "a")
    other = manifests.parent / "other"
    other.write_bytes(path.read_bytes())
    running = Running(manifests)
    assert await running.names() == ["a-node1"]
    replace(path, other)
    if ends:
        assert await running.names() == []
        assert await running.names() == ["a-node1"]
    await asyncio.sleep(files.SCAN_INTERVAL_S * 2.5)
    assert not running.changed.is_set()
    await running.stop()


@pytest.mark.slow
async def test_a_directory_made_later_is_noticed(tmp_path: Path) -> None:
    running = Running(tmp_path / "later")
    assert await running.names() == []
    (tmp_path / "later").mkdir()
    write(tmp_path / "later", "a")
    assert await running.names() == ["a-node1"]
    (tmp_path / "later" / "a.yaml").unlink()
    assert await running.names() == []
    await running.stop()


async def test_without_inotify_it_scans_twice_a_second(
    manifests: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(_on_change: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(files, "PathWatch", refused)
    caplog.set_level("INFO")
    running = Running(manifests)
    assert await running.names() == []
    write(manifests, "a")
    assert await running.names() == ["a-node1"]
    assert "twice a second" in caplog.text
    await running.stop()


async def test_a_field_that_does_nothing_is_logged(
    manifests: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(manifests, "a")
    path.write_text(path.read_text() + "\nspek: {}\n")
    assert await Scanned(manifests).scan() == ["a-node1"]
    assert "spek: there is no such field; it is ignored (did you mean spec?)" in caplog.text
