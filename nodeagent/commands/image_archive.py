"""The names of the images in an archive that `docker save` or another tool wrote.

Made by anybody: only headers and the index are kept, of a regular file, forwards and once, and what
a compressed archive unpacks to is bounded like the file. `tarfile` reads one header; walking by it
would read extended headers of any size into memory, parse them in quadratic time and recurse.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import stat
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from orch.component.terminal import visible

_BLOCK = 512
_SKIPPED_AT_ONCE = 1 << 20
_MAX_MEMBERS = 20_000  # layers and a few files beside them
_MAX_INDEX_BYTES = 4 << 20
_MAX_EXTENDED_BYTES = 64 << 10
_MAX_NAME = 1024
_INDEXES = ("manifest.json", "index.json")
_OCI_NAMES = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
_GZIP = b"\x1f\x8b"
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # opening a pipe would wait for its writer


class ImageArchiveError(Exception):
    """It is no archive of images, or exceeds a bound; the text says why, after the path."""


class _Member(NamedTuple):
    name: str
    size: int
    is_file: bool


def names_in(path: Path, max_bytes: int) -> Sequence[str]:
    """The names of the images. ImageArchiveError; OSError when the file cannot be read."""
    with os.fdopen(os.open(path, _OPEN), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ImageArchiveError("is not a regular file")
        if status.st_size > max_bytes:
            raise ImageArchiveError(f"is larger than --max-mib={max_bytes >> 20}")
        packed = file.read(len(_GZIP)) == _GZIP
        file.seek(0)
        try:
            with gzip.GzipFile(fileobj=file) if packed else file as plain:
                return _names(_indexes(_Walk(plain, max_bytes)))
        except (tarfile.TarError, EOFError, ValueError, RecursionError, *_ODD) as error:
            raise ImageArchiveError(f"is no archive of images: {error or 'damaged'}") from None


_ODD = (KeyError, TypeError, AttributeError)  # of an index with another shape


class _Walk:
    """Over the members of a tar archive. ImageArchiveError, ValueError, EOFError, TarError."""

    def __init__(self, file: io.BufferedIOBase, max_bytes: int) -> None:
        self._file = file
        self._max_bytes = max_bytes
        self._read_bytes = 0
        self._content = 0  # bytes of the member at hand that were not read yet, with its padding

    def __iter__(self) -> Iterator[_Member]:
        size_of_next: int | None = None
        number = 0
        while (header := self._header()) is not None:
            size = header.size if size_of_next is None else size_of_next
            self._content = -(-size // _BLOCK) * _BLOCK
            if size < 0:
                raise ValueError("a member has a size below zero")
            number += 1
            if number > _MAX_MEMBERS:
                raise ImageArchiveError(f"has more than {_MAX_MEMBERS} members")
            if header.type == tarfile.XHDTYPE:
                size_of_next = _size_in(self.content(size, _MAX_EXTENDED_BYTES))
            elif header.type not in (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK):
                size_of_next = None
                if header.islnk() or header.issym() or header.isdir() or header.isdev():
                    self._content = 0
                yield _Member(header.name.removeprefix("./"), size, header.isreg())

    def content(self, size: int, most: int) -> bytes:
        """Of the member at hand."""
        if size > most:
            raise ImageArchiveError(f"has an index or header larger than {most} bytes")
        self._content -= size
        return self._read(size)

    def _header(self) -> tarfile.TarInfo | None:
        """Of the next member; None at the end."""
        self._skip(self._content)
        block = self._read(_BLOCK, may_end=True)
        if self._read_bytes == 0:
            raise EOFError("it is empty")
        if not block.strip(b"\0"):
            return None
        return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")

    def _skip(self, size: int) -> None:
        if self._read_bytes + size > self._max_bytes:
            raise ImageArchiveError(f"holds more than --max-mib={self._max_bytes >> 20}")
        while size:
            size -= len(self._read(min(size, _SKIPPED_AT_ONCE)))

    def _read(self, size: int, *, may_end: bool = False) -> bytes:
        data = self._file.read(size)
        self._read_bytes += len(data)
        if self._read_bytes > self._max_bytes:
            raise ImageArchiveError(f"holds more than --max-mib={self._max_bytes >> 20}")
        if len(data) < size and not (may_end and not data):
            raise EOFError("it ends early")
        return data


def _size_in(extended: bytes) -> int | None:
    """The size that a POSIX extended header gives to the member after it; None: not this."""
    for record in extended.split(b"\n"):
        key, _, value = record.partition(b" ")[2].partition(b"=")
        if key == b"size":
            return int(value[:20])
    return None


def _indexes(walk: _Walk) -> dict[str, Any]:
    """What the index files hold, of which the first counts."""
    found: dict[str, Any] = {}
    for member in walk:
        if member.is_file and member.name in _INDEXES and member.name not in found:
            if member.size > _MAX_INDEX_BYTES:
                raise ImageArchiveError(f"{member.name} is larger than {_MAX_INDEX_BYTES} bytes")
            found[member.name] = json.loads(walk.content(member.size, _MAX_INDEX_BYTES))
    return found


def _names(found: dict[str, Any]) -> Sequence[str]:
    if "manifest.json" in found:
        names = [str(tag) for image in found["manifest.json"] for tag in image["RepoTags"] or ()]
    elif "index.json" in found:
        annotated = [entry.get("annotations") or {} for entry in found["index.json"]["manifests"]]
        names = [str(a[name]) for a in annotated for name in _OCI_NAMES[:1] if name in a]
        names = names or [str(a[_OCI_NAMES[1]]) for a in annotated if _OCI_NAMES[1] in a]
    else:
        raise ImageArchiveError("has neither manifest.json nor index.json: no archive of images")
    if not names:
        raise ImageArchiveError("names no image: save it by its name and tag, not by its id")
    if odd := [name for name in names if len(name) > _MAX_NAME or not name.isprintable()]:
        raise ImageArchiveError(f"names an image {visible(odd[0][:64])!r}: that is no name")
    return names
