"""The archives in the store: listed, verified, pinned, removed, and shown as JSON records.

Must not know how archives are written. Used by the agent and, on a node whose agent is not running,
by `nodeagent checkpoint`. Blocking I/O.
"""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nodeagent.archives import folder
from nodeagent.archives.bounds import Archive, Space
from nodeagent.archives.folder import StoreError
from nodeagent.archives.manifest import (
    DIRECTORY,
    ENCRYPTED_SUFFIX,
    MANIFEST_SUFFIX,
    PIN_SUFFIX,
    Manifest,
    ManifestError,
    is_archive,
    parse_manifest,
    pod_of,
    time_of,
)
from nodeagent.archives.streaming import digest_of
from orch.component.process.atomic_file import replace_file
from orch.wire import times


class ArchiveIndex:
    """Of the store below the agent's `root_dir`; a store that does not exist yet is empty."""

    def __init__(self, root_dir: str) -> None:
        self.path = Path(root_dir, DIRECTORY)

    def archives(self) -> tuple[Archive, ...]:
        """Every archive, oldest first. StoreError when the directory cannot be used."""
        try:
            with folder.opened(self.path, create=False) as directory:
                listed = set(os.listdir(directory))
                found = [_archive(directory, name, listed) for name in listed]
        except FileNotFoundError:
            return ()
        return tuple(sorted((a for a in found if a), key=lambda a: (a.created, a.name)))

    def find(self, name: str) -> Archive:
        """The archive with this name or path. StoreError when there is none."""
        wanted = name.removeprefix(f"{self.path}/")
        for archive in self.archives():
            if archive.name == wanted:
                return archive
        raise StoreError(f"there is no archive {wanted!r} in {self.path}")

    def remove(self, archive: Archive) -> None:
        """Remove an archive, its manifest and its pin; an archive already gone is no error."""
        with folder.opened(self.path, create=False) as directory:
            for suffix in ("", MANIFEST_SUFFIX, PIN_SUFFIX):
                folder.remove(directory, archive.name + suffix)

    def pin(self, archive: Archive) -> None:
        with folder.opened(self.path, create=False) as directory:
            os.close(folder.create_file(directory, archive.name + PIN_SUFFIX))

    def unpin(self, archive: Archive) -> None:
        with folder.opened(self.path, create=False) as directory:
            folder.remove(directory, archive.name + PIN_SUFFIX)

    def record_pod_gone(self, archive: Archive, *, gone_since: datetime | None) -> None:
        """Record in the manifest, if there is one, since when the pod is gone; None: it exists."""
        if archive.manifest is None:
            return
        manifest = archive.manifest.with_gone_since(gone_since)
        beside = archive.name + MANIFEST_SUFFIX
        with folder.opened(self.path, create=False) as directory:
            replace_file(beside, manifest.to_json(), durable=True, directory=directory)

    def verify(self, archive: Archive) -> str:
        """The first difference between an archive and its manifest; "" when they agree."""
        manifest = archive.manifest
        if manifest is None or not manifest.sha256:
            return "it has no manifest with a digest to compare with"
        with folder.opened(self.path, create=False) as directory:
            descriptor = folder.open_file(directory, archive.name)
        try:
            status = os.fstat(descriptor)
            if status.st_size != manifest.size_bytes:
                return f"it has {status.st_size} bytes, and had {manifest.size_bytes} when created"
            digest = digest_of(descriptor)
        finally:
            os.close(descriptor)
        if digest != manifest.sha256:
            return f"its SHA-256 is {digest}, and was {manifest.sha256} when it was created"
        mode = stat.S_IMODE(status.st_mode)
        return f"its mode is {mode:04o}: others can read it" if mode & 0o077 else ""

    def space(self) -> Space:
        """Of the file system that holds the store, or will hold it."""
        existing = next(path for path in (self.path, *self.path.parents) if path.exists())
        status = os.statvfs(existing)
        return Space(status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize)


def _archive(directory: int, name: str, listed: set[str]) -> Archive | None:
    """None when the file is not an archive, or is gone."""
    if not is_archive(name):
        return None
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    manifest = _manifest(directory, name) if name + MANIFEST_SUFFIX in listed else None
    modified = datetime.fromtimestamp(status.st_mtime, UTC)
    created = (manifest and manifest.created_at) or time_of(name) or modified
    return Archive(name, status.st_size, created, name + PIN_SUFFIX in listed, manifest)


def _manifest(directory: int, name: str) -> Manifest | None:
    """None when it cannot be read: the origin of the archive is then unknown."""
    text = folder.read_small(directory, name + MANIFEST_SUFFIX)
    try:
        manifest = parse_manifest(text) if text is not None else None
    except ManifestError:
        return None
    return manifest if manifest and manifest.name == name else None


def record_of(archive: Archive, directory: str) -> dict[str, Any]:
    """The JSON object that the API and the commands show; "" where the manifest is missing."""
    manifest = archive.manifest or Manifest(archive.name, pod=pod_of(archive.name))
    return {
        "name": archive.name,
        "path": f"{directory}/{archive.name}",
        "namespace": manifest.namespace,
        "pod": manifest.pod,
        "uid": manifest.uid,
        "container": manifest.container,
        "containerID": manifest.container_id,
        "image": manifest.image,
        "runtime": manifest.runtime,
        "created": times.format_time(archive.created),
        "size": archive.size_bytes,
        "sha256": manifest.sha256,
        "encryption": "age" if archive.name.endswith(ENCRYPTED_SUFFIX) else "",
        "pinned": archive.pinned,
        "podGoneSince": manifest.pod_gone_since,
    }
