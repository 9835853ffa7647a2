"""The debug archive: files about this host and the agent's log, scrubbed of secrets.

Settings typed as secrets never get here. Scrubbing is the second line of defence: known values, and
anything that looks like a credential, are removed from logs and pages. Must not overwrite files or
change the host.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import tarfile
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from nodeagent.config.types import NodeAgentConfiguration
from orch.component.process import system
from orch.component.process.daemon import SetupError
from orch.component.secret import SHOWN, Secret

MAX_BYTES = 4 * 1024 * 1024
MAX_CGROUPS = 2000
_PROC = (
    "version", "cmdline", "meminfo", "loadavg", "mounts", "self/cgroup", "self/limits",
    "self/status", "pressure/cpu", "pressure/memory", "pressure/io", "sys/kernel/pid_max",
    "sys/fs/file-nr",
)  # fmt: skip
LOG_LINES = 2000
_LOG_TIMEOUT_S = 20.0

Entry = tuple[str, bytes]


def host_entries(*, proc: str = "/proc", cgroups: str = "/sys/fs/cgroup") -> Iterator[Entry]:
    """An entry per file; an unreadable file's entry holds the error."""
    for name in _PROC:
        yield f"host/{name.replace('/', '-')}.txt", read_file(Path(proc, name))
    yield "host/cgroups.txt", _cgroup_names(Path(cgroups))
    rows = map(json.dumps, system.processes())
    yield "host/processes.txt", ("\n".join(rows) + "\n").encode()


def read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES)
    except OSError as error:
        return f"{path}: {error.strerror or error}\n".encode()


def log_entry(log_file: str, unit: str) -> Entry:
    """The end of the agent's log file, or else of the unit's journal."""
    if log_file:
        return "log.txt", _end_of(Path(log_file))
    command = [
        "journalctl",
        f"--unit={unit}",
        f"--lines={LOG_LINES}",
        "--output=short-iso-precise",
    ]
    try:
        done = subprocess.run(
            [*command, "--no-pager"], capture_output=True, timeout=_LOG_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "log.txt", f"the journal cannot be read: {error}; give --log-file\n".encode()
    return "log.txt", (done.stdout or done.stderr)[-MAX_BYTES:]


def _end_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - MAX_BYTES, 0))
            lines = file.read(MAX_BYTES).splitlines(keepends=True)
    except OSError as error:
        return f"{path}: {error.strerror or error}\n".encode()
    return b"".join(lines[-LOG_LINES:])


def _cgroup_names(root: Path) -> bytes:
    names = []
    for folder, below, _ in os.walk(root):
        below.sort()
        names.append(folder)
        if len(names) >= MAX_CGROUPS:
            names.append(f"… more than {MAX_CGROUPS}; the rest is omitted")
            break
    return ("\n".join(names) + "\n").encode()


FOLDER = "nodeagent-debug"


def write_bundle(
    path: str, entries: Iterable[Entry], clean: Callable[[bytes], bytes], *, now: datetime
) -> int:
    """Write the archive (tar, gzip, 0600) and return the number of its entries.

    SetupError when the file exists or cannot be written; a partial file is removed.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise SetupError(f"cannot write {path}: {error.strerror or error}") from None
    count = 0
    try:
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as tar:
            for name, body in entries:
                tar.addfile(*_member(name, clean(body), now))
                count += 1
    except OSError as error:
        os.unlink(path)
        raise SetupError(f"cannot write {path}: {error.strerror or error}") from None
    except BaseException:
        os.unlink(path)
        raise
    return count


def _member(name: str, body: bytes, now: datetime) -> tuple[tarfile.TarInfo, io.BytesIO]:
    info = tarfile.TarInfo(f"{FOLDER}/{name}")
    info.size, info.mode, info.mtime = len(body), 0o600, int(now.timestamp())
    return info, io.BytesIO(body)


_LEAST_LENGTH = 4  # a shorter value is not a secret, and would remove half the text
_LEAST_PARAMETER = 8  # of a query's value: shorter ones are words such as `json`
_SHOWN = SHOWN.encode()
_PATTERNS = (
    re.compile(
        rb"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S
    ),
    re.compile(rb"(?i)(?<=bearer )[A-Za-z0-9._~+/=-]{8,}"),
    re.compile(rb"(?i)(?<=basic )[A-Za-z0-9+/=]{8,}"),
    re.compile(rb"(?<=://)[^\s/@:]+:[^\s/@]+(?=@)"),  # user:password@host
    # A signed token. Tried once in a word, at its start: a long word costs no more than its length.
    re.compile(
        rb"(?<![A-Za-z0-9_-])(?=[A-Za-z0-9_-]*?eyJ)"
        rb"[A-Za-z0-9_-]{11,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*+"
    ),
)


def scrubber(secrets: Iterable[str]) -> Callable[[bytes], bytes]:
    """A function that removes these values, and anything like a credential, from a text."""
    known = sorted({s.encode() for s in secrets if len(s) >= _LEAST_LENGTH}, key=len, reverse=True)
    values = re.compile(b"|".join(map(re.escape, known))) if known else None

    def clean(text: bytes) -> bytes:
        if values:
            text = values.sub(_SHOWN, text)
        for pattern in _PATTERNS:
            text = pattern.sub(_SHOWN, text)
        return text

    return clean


def secrets_of(config: NodeAgentConfiguration) -> set[str]:
    """All secrets in the configuration, and their words: `Bearer x` also hides `x`."""
    found = {secret.reveal() for secret in _walk(config)}
    found |= {word for value in found for word in value.split()}
    return found | set(_credentials_in(config.staticPodURL))


def _credentials_in(address: str) -> Iterable[str]:
    """The password and the query of an address, as written and decoded."""
    before, _, query = address.partition("?")
    user = before.partition("://")[2].partition("/")[0].rpartition("@")[0]
    values = (pair.partition("=")[2] for pair in query.split("&"))
    long = (value for value in values if len(value) >= _LEAST_PARAMETER)
    for part in filter(None, (user.partition(":")[2], query, *long)):
        yield part
        yield unquote(part)


def _walk(value: Any) -> Iterable[Secret]:
    if isinstance(value, Secret):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _walk(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _walk(item)
    elif hasattr(type(value), "model_fields"):
        for name in type(value).model_fields:
            yield from _walk(getattr(value, name))
