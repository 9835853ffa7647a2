"""Facts of a host as files: what is there, what is missing, how much at most."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from nodeagent.debug import bundle
from nodeagent.debug.bundle import host_entries, log_entry


def test_every_file_has_an_entry_and_a_missing_one_says_why(tmp_path: Path) -> None:
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroups"
    (proc / "pressure").mkdir(parents=True)
    (proc / "pressure/cpu").write_text("some avg10=0.00\n")
    (cgroups / "pods/a").mkdir(parents=True)
    entries = dict(host_entries(proc=str(proc), cgroups=str(cgroups)))
    assert entries["host/pressure-cpu.txt"] == b"some avg10=0.00\n"
    assert entries["host/meminfo.txt"] == f"{proc}/meminfo: No such file or directory\n".encode()
    listed = [str(cgroups), f"{cgroups}/pods", f"{cgroups}/pods/a"]
    assert entries["host/cgroups.txt"].decode().split() == listed


def test_every_process_is_a_line_without_its_arguments() -> None:
    lines = dict(host_entries())["host/processes.txt"].decode().splitlines()
    assert os.getpid() in [json.loads(line)["pid"] for line in lines]
    assert not any("--import-mode" in line for line in lines)


def test_a_large_cgroup_tree_is_cut_off_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "MAX_CGROUPS", 2)
    for name in "abc":
        (tmp_path / name).mkdir()
    lines = dict(host_entries(cgroups=str(tmp_path)))["host/cgroups.txt"].decode().splitlines()
    assert len(lines) == 3
    assert lines[2] == "… more than 2; the rest is omitted"


def test_the_log_is_its_last_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "LOG_LINES", 2)
    log = tmp_path / "log"
    log.write_bytes(b"one\ntwo\nthree\n")
    assert log_entry(str(log), "x") == ("log.txt", b"two\nthree\n")
    monkeypatch.setattr(bundle, "MAX_BYTES", 7)
    assert log_entry(str(log), "x")[1] == b"\nthree\n"
    assert b"No such file" in log_entry(str(tmp_path / "absent"), "x")[1]


def test_without_a_log_file_the_journal_of_the_unit_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "journalctl"
    tool.write_text('#!/bin/sh\necho "asked $*"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert log_entry("", "agent")[1].startswith(b"asked --unit=agent --lines=2000")
    tool.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert b"give --log-file" in log_entry("", "agent")[1]
