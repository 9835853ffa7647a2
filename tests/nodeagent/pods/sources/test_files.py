"""Static pods from files, in a real directory."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from nodeagent.pods.sources import files
from nodeagent.pods.sources.files import FileSource
from nodeagent.pods.sources.manifests import Origin
from orch.component.process import loops
from orch.wire.records.pods import Pod

GOOD = """
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec: {containers: [{name: app, image: x%s}]}
"""


class Looked:
    """A FileSource that is looked at by hand; `told` counts its changes."""

    def __init__(self, path: Path) -> None:
        self.told = 0
        self.source = FileSource(str(path), "node1")
        self.source._changed = self._tell

    def _tell(self) -> None:
        self.told += 1

    async def look(self, times: int = 1) -> list[str]:
        for _ in range(times):
            await self.source.look()
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
    looked = Looked(manifests)
    assert not looked.source.ready
    assert await looked.look() == ["a-node1", "b-node1"]
    assert looked.source.ready
    assert looked.told == 1
    await looked.look(3)
    assert looked.told == 1


async def test_hidden_files_directories_and_dangling_links_are_passed_over(
    manifests: Path,
) -> None:
    write(manifests, ".hidden")
    (manifests / "sub").mkdir()
    write(manifests / "sub", "inner")
    (manifests / "dangling.yaml").symlink_to("nowhere")
    assert await Looked(manifests).look() == []


async def test_a_single_file_is_a_source_too(manifests: Path) -> None:
    path = write(manifests, "a")
    write(manifests, "b")
    assert await Looked(path).look() == ["a-node1"]


async def test_a_path_that_does_not_exist_yet_is_an_empty_source(tmp_path: Path) -> None:
    looked = Looked(tmp_path / "later")
    assert await looked.look() == []
    assert looked.source.ready
    assert not looked.source.doubtful
    (tmp_path / "later").mkdir()
    write(tmp_path / "later", "a")
    assert await looked.look(2) == ["a-node1"]


async def test_a_new_file_is_read_when_two_looks_agree_about_it(manifests: Path) -> None:
    looked = Looked(manifests)
    await looked.look()
    path = manifests / "a.yaml"
    path.write_text((GOOD % ("a", ""))[:30])
    assert await looked.look() == []
    path.write_text(GOOD % ("a", ""))
    assert await looked.look() == []
    assert await looked.look() == ["a-node1"]
    assert looked.told == 2


async def test_a_removed_file_takes_its_pod_with_it(manifests: Path) -> None:
    path = write(manifests, "a")
    looked = Looked(manifests)
    await looked.look()
    path.unlink()
    assert await looked.look() == []
    assert looked.told == 2


async def test_a_changed_file_is_another_pod(manifests: Path) -> None:
    write(manifests, "a")
    looked = Looked(manifests)
    await looked.look()
    before = looked.source.pods()[0].metadata.uid
    write(manifests, "a", image="y")
    await looked.look(2)
    assert looked.source.pods()[0].metadata.uid != before
    assert looked.told == 2


async def test_a_touched_file_is_no_change(manifests: Path) -> None:
    path = write(manifests, "a")
    looked = Looked(manifests)
    await looked.look()
    os.utime(path, (1, 1))
    await looked.look(3)
    assert looked.told == 1


async def test_a_file_that_turns_bad_keeps_its_pod_and_is_logged_once(
    manifests: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(manifests, "a")
    write(manifests, "b")
    looked = Looked(manifests)
    await looked.look()
    path.write_text("kind: [")
    assert await looked.look(5) == ["a-node1", "b-node1"]
    assert caplog.text.count("manifest ignored: ") == 1
    assert "its pod default/a-node1 stays as it was" in caplog.text
    assert not looked.source.doubtful
    write(manifests, "a", image="new")
    assert await looked.look(2) == ["a-node1", "b-node1"]
    assert looked.source.pods()[0].spec.containers[0].image == "xnew"


async def test_a_file_that_was_never_good_makes_the_source_doubtful(
    manifests: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = manifests / "a.yaml"
    bad.write_text("a: 1\na: 2\n")
    write(manifests, "b")
    looked = Looked(manifests)
    assert await looked.look() == ["b-node1"]
    assert looked.source.doubtful
    assert f"{bad}:2: a: the key is given twice" in caplog.text
    bad.unlink()
    await looked.look()
    assert not looked.source.doubtful


async def test_a_change_is_found_that_keeps_size_and_time_of_modification(manifests: Path) -> None:
    path = write(manifests, "a", image="1")
    looked = Looked(manifests)
    await looked.look()
    status = path.stat()
    with path.open("r+") as stream:
        stream.write(GOOD % ("a", "2"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    await looked.look(2)
    assert looked.source.pods()[0].spec.containers[0].image == "x2"


async def test_a_huge_file_is_refused(manifests: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (manifests / "a.yaml").open("wb") as stream:
        stream.truncate(10 * 2**20 + 1)
    assert await Looked(manifests).look() == []
    assert "larger than 10 MiB" in caplog.text


async def test_what_is_read_by_others_during_a_look_is_whole_and_of_before(
    manifests: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        write(manifests, name)
    looked = Looked(manifests)
    await looked.look()
    seen: list[list[str]] = []
    real = files.read_manifest

    def read(path: Path, origin: Origin) -> Pod:
        seen.append([one.metadata.name for one in looked.source.pods()])
        return real(path, origin)

    monkeypatch.setattr(files, "read_manifest", read)
    write(manifests, "b", image="new")
    await looked.look()
    (manifests / "a.yaml").unlink()
    assert await looked.look() == ["b-node1", "c-node1"]
    assert seen == [["a-node1", "b-node1", "c-node1"]]


async def test_a_fifo_does_not_hang_the_source(manifests: Path) -> None:
    os.mkfifo(manifests / "a.yaml")
    assert await Looked(manifests).look() == []


async def test_only_a_file_that_changed_or_could_not_be_read_is_read_again(
    manifests: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        write(manifests, name)
    read: list[str] = []
    real = files._digest

    def digest(path: str) -> bytes:
        read.append(Path(path).stem)
        if len(read) == 1:
            raise OSError(5, "Input/output error")
        return real(path)

    monkeypatch.setattr(files, "_digest", digest)
    looked = Looked(manifests)
    assert await looked.look() == ["b-node1"]
    assert await looked.look(3) == ["a-node1", "b-node1"]
    write(manifests, "b", image="new")
    await looked.look(3)
    assert read == ["a", "b", "a", "b"]


async def test_a_content_that_is_known_is_not_parsed_again(
    manifests: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(manifests, "a")
    (manifests / "bad.yaml").write_text("a: 1")
    parsed: list[Path] = []
    real = files.read_manifest

    def read(path: Path, origin: Origin) -> Pod:
        parsed.append(path)
        return real(path, origin)

    monkeypatch.setattr(files, "read_manifest", read)
    looked = Looked(manifests)
    await looked.look(3)
    os.utime(path, (1, 1))
    assert await looked.look(3) == ["a-node1"]
    assert parsed == [path, manifests / "bad.yaml"]


class Running:
    """A FileSource at work; `looks` are the times it looked."""

    def __init__(self, path: Path) -> None:
        self.changed = asyncio.Event()
        self.looks: list[float] = []
        self.source = FileSource(str(path), "node1")
        self._look = self.source.look
        self.source.look = self._counted  # type: ignore[method-assign]
        self._task = loops.spawn(self.source.run(self.changed.set), name="source")

    async def _counted(self) -> None:
        self.looks.append(asyncio.get_running_loop().time())
        await self._look()

    async def names(self) -> list[str]:
        """The pods after the next change."""
        async with asyncio.timeout(10):
            await self.changed.wait()
        self.changed.clear()
        return [pod.metadata.name for pod in self.source.pods()]

    async def stop(self) -> None:
        await loops.cancel(self._task)


async def test_a_source_at_rest_does_not_look(manifests: Path) -> None:
    write(manifests, "a")
    running = Running(manifests)
    assert await running.names() == ["a-node1"]
    await asyncio.sleep(files.LOOK_INTERVAL_S * 2.5)
    assert len(running.looks) == 1
    await running.stop()


async def test_a_change_is_noticed_at_once_and_read_when_it_has_settled(manifests: Path) -> None:
    running = Running(manifests)
    assert await running.names() == []
    await asyncio.sleep(files.LOOK_INTERVAL_S * 1.2)
    began_s = asyncio.get_running_loop().time()
    write(manifests, "a")
    assert await running.names() == ["a-node1"]
    noticed_s, read_s = (time_s - began_s for time_s in running.looks[1:3])
    assert noticed_s < 5, "nothing else would notice it"
    assert read_s - noticed_s >= files.LOOK_INTERVAL_S * 0.9
    await running.stop()


async def test_a_directory_made_later_is_noticed(tmp_path: Path) -> None:
    running = Running(tmp_path / "later")
    assert await running.names() == []
    (tmp_path / "later").mkdir()
    write(tmp_path / "later", "a")
    assert await running.names() == ["a-node1"]
    (tmp_path / "later" / "a.yaml").unlink()
    assert await running.names() == []
    await running.stop()


async def test_without_inotify_it_looks_twice_a_second(
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
    assert await Looked(manifests).look() == ["a-node1"]
    assert "spek: there is no such field; it is ignored (did you mean spec?)" in caplog.text
