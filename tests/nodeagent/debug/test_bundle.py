"""The debug archive: private, never over another file, with facts of the host, without secrets."""

from __future__ import annotations

import json
import os
import stat
import tarfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.debug import bundle
from nodeagent.debug.bundle import (
    Entry,
    host_entries,
    log_entry,
    scrubber,
    secrets_of,
    write_bundle,
)
from orch.component.process.daemon import SetupError

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def keep(text: bytes) -> bytes:
    return text


def test_entries_are_in_the_archive_cleaned_and_private(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    entries = [("a.txt", b"one"), ("pages/b.txt", b"two")]
    assert write_bundle(str(path), entries, bytes.upper, now=NOW) == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with tarfile.open(path) as tar:
        members = {member.name: member for member in tar}
        assert list(members) == ["nodeagent-debug/a.txt", "nodeagent-debug/pages/b.txt"]
        file = tar.extractfile("nodeagent-debug/pages/b.txt")
        assert file and file.read() == b"TWO"
        assert {member.mode for member in members.values()} == {0o600}


def test_a_file_or_a_link_that_is_there_is_not_touched(tmp_path: Path) -> None:
    victim, link = tmp_path / "victim", tmp_path / "link"
    victim.write_text("precious")
    link.symlink_to(victim)
    for path in (victim, link):
        with pytest.raises(SetupError, match=f"cannot write {path}: "):
            write_bundle(str(path), [("a", b"")], keep, now=NOW)
    assert victim.read_text() == "precious"


def broken(error: BaseException) -> Iterator[Entry]:
    yield "a.txt", b"x"
    raise error


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("x")])
def test_an_unfinished_archive_is_removed(tmp_path: Path, error: Exception) -> None:
    path = tmp_path / "b.tar.gz"
    with pytest.raises((SetupError, ValueError)):
        write_bundle(str(path), broken(error), keep, now=NOW)
    assert not path.exists()


def test_every_file_has_an_entry_even_if_it_is_missing(tmp_path: Path) -> None:
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


def test_a_large_cgroup_tree_is_truncated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_without_a_log_file_the_journal_of_the_unit_is_read(
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


CREDENTIALS = [
    (b"Authorization: Bearer abcdef0123456789\n", b"Authorization: Bearer CLASSIFIED\n"),
    (b"authorization: bearer abcdef0123456789", b"authorization: bearer CLASSIFIED"),
    (b"Authorization: Basic dXNlcjpwYXNz", b"Authorization: Basic CLASSIFIED"),
    (b"GET https://user:pass@host/x", b"GET https://CLASSIFIED@host/x"),
    (b"GET https://host:8443/x@y", b"GET https://host:8443/x@y"),
    (
        b"a\n-----BEGIN EC PRIVATE KEY-----\nMHc\n-----END EC PRIVATE KEY-----\nb",
        b"a\nCLASSIFIED\nb",
    ),
    (b"-----BEGIN PRIVATE KEY-----\ncut off", b"CLASSIFIED"),
    (b"-----BEGIN CERTIFICATE-----\nMII", b"-----BEGIN CERTIFICATE-----\nMII"),
    (b"token eyJhbGciOiJI.eyJzdWIiOiJ4.c2lnbmF0dXJl.", b"token CLASSIFIED."),
    (b"a_eyJhbGciOiJI.eyJzdWIiOiJ4.c2lnbmF0dXJl b", b"CLASSIFIED b"),
    (b"the bearer of news", b"the bearer of news"),
]
LONG_WORDS = [b"eyJ", b"eyJ12345678.", b"://a", b"bearer ", b"-----BEGIN PRIVATE "]


@pytest.mark.parametrize(("text", "cleaned"), CREDENTIALS)
def test_anything_like_a_credential_is_removed(text: bytes, cleaned: bytes) -> None:
    assert scrubber(())(text) == cleaned


@pytest.mark.parametrize("word", LONG_WORDS)
def test_the_time_is_linear_in_the_text(word: bytes) -> None:
    """A pod chooses what it logs: squared, a mebibyte takes hours."""
    began_s = time.process_time()
    scrubber(())(word * (2**20 // len(word)))
    assert time.process_time() - began_s < 5


WORDS = st.text("abcdefghijklmnopqrstuvwxyz0123456789+/=.*[(", min_size=4, max_size=30)


@given(secrets=st.sets(WORDS, min_size=1, max_size=4), around=st.lists(WORDS, max_size=4))
def test_known_values_are_removed_in_any_context(secrets: set[str], around: list[str]) -> None:
    text = " ".join([*around, *secrets, *around, *secrets]).encode()
    cleaned = scrubber(secrets)(text).replace(b"CLASSIFIED", b"")
    assert not [secret for secret in secrets if secret.encode() in cleaned]


def test_a_value_too_short_to_be_a_secret_leaves_the_text_alone() -> None:
    assert scrubber(["a", "", "abc"])(b"abc") == b"abc"


def test_the_secrets_of_a_configuration_are_its_secret_fields_and_their_words() -> None:
    config = NodeAgentConfiguration.model_validate(
        {"staticPodURLHeader": {"Authorization": ["Bearer s3cret"], "X": ["other"]}}
    )
    assert secrets_of(config) == {"Bearer s3cret", "Bearer", "s3cret", "other"}
    address = NodeAgentConfiguration(staticPodURL="https://u:p%40ss@h/x?as=json&key=abcdef%21")
    query = {"as=json&key=abcdef%21", "as=json&key=abcdef!"}
    assert secrets_of(address) == {"p%40ss", "p@ss", "abcdef%21", "abcdef!", *query}
    assert secrets_of(NodeAgentConfiguration()) == set()
