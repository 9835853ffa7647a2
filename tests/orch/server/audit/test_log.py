from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orch.component.process import clock
from orch.component.process.daemon import SetupError
from orch.server.audit import log as audit_log
from orch.server.audit.log import AuditLog, Rotation

PATIENCE_S = 10.0


class Lost:
    def __init__(self) -> None:
        self.count = 0

    def one(self) -> None:
        self.count += 1

    def wait(self, count: int) -> None:
        """Until the log's thread has dropped that many lines."""
        end_s = time.monotonic() + PATIENCE_S
        while self.count < count:
            assert time.monotonic() < end_s, f"{self.count} lines were dropped, not {count}"
            time.sleep(0.001)


def written(path: str | Path, rotation: Rotation, lines: list[bytes]) -> int:
    """Write everything and close; how many lines were lost."""
    lost = Lost()
    log = AuditLog(str(path), rotation, lost.one)
    log.open()
    for line in lines:
        log.write(line)
    log.close()
    return lost.count


def test_every_line_is_in_the_file_in_order_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "audit.log"
    lines = [b"%d\n" % number for number in range(5000)]
    assert written(path, Rotation(), lines[:2500]) == 0
    assert written(path, Rotation(), lines[2500:]) == 0
    assert path.read_bytes() == b"".join(lines)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_full_files_are_put_aside_and_the_oldest_dropped(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    lines = [b"%09d\n" % number for number in range(100)]
    assert written(path, Rotation(max_bytes=100, max_files=3), lines) == 0
    older = sorted(tmp_path.glob("audit-*.log"))
    assert len(older) == 3
    kept = b"".join(file.read_bytes() for file in (*older, path))
    assert kept == b"".join(lines[60:])
    assert max(file.stat().st_size for file in older) <= 100


def test_files_that_are_too_old_are_dropped_and_others_left(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "audit.log"
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    (tmp_path / "audit-notes.log").write_text("somebody else's")
    for day in range(0, 50, 10):
        monkeypatch.setattr(clock, "utc_now", lambda day=day: moment + timedelta(days=day))
        written(path, Rotation(max_bytes=1, max_files=0, max_days=25), [b"x\n"] * 2)
    names = sorted(file.name[6:16] for file in tmp_path.glob("audit-2026*"))
    assert set(names) == {"2026-01-21", "2026-01-31", "2026-02-10"}
    assert (tmp_path / "audit-notes.log").exists()


def _link(path: Path) -> None:
    path.symlink_to("target.log")


def _device(path: Path) -> None:
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))


@pytest.mark.parametrize("make", [_link, pytest.param(_device, marks=pytest.mark.real)])
def test_what_is_no_regular_file_is_written_and_never_moved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make: Callable[[Path], None]
) -> None:
    path = tmp_path / "audit.log"
    make(path)
    before = path.lstat().st_ino, path.lstat().st_rdev
    assert written(path, Rotation(max_bytes=10), [b"123456789\n"] * 3) == 0
    assert (path.lstat().st_ino, path.lstat().st_rdev) == before
    assert list(tmp_path.glob("audit-*")) == []
    assert caplog.messages == [f"{path} is not a regular file: it is never rotated"]
    if path.is_symlink():
        assert (tmp_path / "target.log").read_bytes() == b"123456789\n" * 3


def test_without_bounds_nothing_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    written(path, Rotation(0, 0, 0), [b"x" * 1000] * 100)
    assert [file.name for file in tmp_path.iterdir()] == ["audit.log"]


def test_a_path_that_cannot_be_written_is_named_at_start(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="--audit-log-path"):
        written(tmp_path, Rotation(), [])


def test_what_cannot_be_written_is_counted_said_once_and_tried_again(
    tmp_path: Path, monkeypatch, caplog
) -> None:
    path = tmp_path / "audit.log"
    lost = Lost()
    log = AuditLog(str(path), Rotation(), lost.one)
    real = os.write

    def full(_descriptor: int, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    log.open()
    monkeypatch.setattr(audit_log.os, "write", full)
    log.write(b"1\n")
    lost.wait(1)
    log.write(b"2\n")
    log.write(b"3\n")
    lost.wait(3)
    monkeypatch.setattr(audit_log.os, "write", real)
    log.write(b"4\n")
    log.close()
    assert lost.count == 3
    assert path.read_bytes() == b"4\n"
    said = [record.message for record in caplog.records if record.name == audit_log.__name__]
    assert len([text for text in said if "No space left" in text]) == 1


def test_a_disk_that_takes_half_a_line_keeps_none_of_it(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "audit.log"
    lost = Lost()
    log = AuditLog(str(path), Rotation(), lost.one)
    real, room = os.write, [6]

    def nearly_full(descriptor: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        taken = real(descriptor, bytes(data[: room[0]]))
        room[0] -= taken
        return taken

    log.open()
    monkeypatch.setattr(audit_log.os, "write", nearly_full)
    log.write(b"one\n")
    log.write(b"two\n")
    lost.wait(1)
    assert path.read_bytes() == b"one\n"
    room[0] = 100
    log.write(b"three\n")
    log.close()
    assert path.read_bytes() == b"one\nthree\n"


def test_lines_beyond_what_can_wait_are_counted(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(audit_log, "MAX_WAITING", 0)
    assert written(tmp_path / "audit.log", Rotation(), [b"1\n"]) == 1


def test_standard_output_can_be_the_log(capfdbinary) -> None:
    written("-", Rotation(), [b"1\n", b"2\n"])
    assert capfdbinary.readouterr().out == b"1\n2\n"
