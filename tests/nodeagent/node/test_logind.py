"""The login manager's failures; that it works is seen on a booted machine (tests/systemd)."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.node.logind import Logind, LogindError


async def test_a_bus_that_is_not_there_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path / 'bus'}")
    manager = Logind()
    with pytest.raises(LogindError, match="the system bus does not answer: "):
        await manager.connect()
    manager.close()


async def test_a_drop_in_that_cannot_be_written_names_its_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    manager = Logind(tmp_path / "file" / "99-nodeagent.conf")
    with pytest.raises(LogindError, match=r"cannot write .*/file/99-nodeagent\.conf: "):
        await manager.raise_delay(30)
