"""Which mounts an instance takes back at its end: those it made, whenever it made them."""

from pathlib import Path

import pytest

from tools.runtime_lib import instance, sharing


class Mounts:
    """The machine's mounts: what the tool runs is done to this table."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.points: list[str] = []
        monkeypatch.setattr(sharing, "run", self.run)
        monkeypatch.setattr(sharing, "mounts", self.table)

    def run(self, command: list[str]) -> None:
        if command[0] == "umount":
            self.points.remove(command[-1])
        elif "--bind" in command:
            self.points.append(command[-1])

    def table(self) -> list[list[str]]:
        return [["1", "1", "8:1", "/", point, "rw", "shared:1"] for point in self.points]


@pytest.fixture
def mounts(monkeypatch: pytest.MonkeyPatch) -> Mounts:
    return Mounts(monkeypatch)


@pytest.fixture
def made(tmp_path: Path) -> instance.Instance:
    (tmp_path / "runtime").mkdir()
    return instance.find(tmp_path / "runtime", tmp_path / "base")


def test_an_instance_that_comes_up_again_takes_back_what_it_shared_at_first(
    mounts: Mounts, made: instance.Instance, tmp_path: Path
) -> None:
    sharing.share_all([tmp_path / "agent"], made)
    sharing.share_all([tmp_path / "agent", tmp_path / "more"], made)
    sharing.share_all([], made)
    assert mounts.points == [str(tmp_path / "agent"), str(tmp_path / "more")]
    sharing.unshare(sharing.made_for(made))
    assert mounts.points == []


def test_a_mount_that_was_there_before_stays(
    mounts: Mounts, made: instance.Instance, tmp_path: Path
) -> None:
    disk = str(tmp_path / "agent")
    mounts.points = [disk]
    sharing.share_all([tmp_path / "agent"], made)
    sharing.unshare(sharing.made_for(made))
    assert mounts.points == [disk]
