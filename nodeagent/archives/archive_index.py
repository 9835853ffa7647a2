"""The archives that are in the store: listed, verified, pinned and removed.

Knows nothing of how they came there. Used by the agent and, on a node whose agent does not run, by
`nodeagent checkpoint`. Blocking I/O.

An archive as programs are told of it: by `GET /checkpoint` and by the commands; pure.
"""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nodeagent.archives import folder
from nodeagent.archives import manifest as archives_manifest
from nodeagent.archives.bounds import Archive, Space
from nodeagent.archives.folder import StoreError
from nodeagent.archives.manifest import Manifest, ManifestError, parse_manifest
from nodeagent.archives.streaming import digest_of
from orch.component.process.atomic_file import replace_file
from orch.wire import times


class Shelf:
    """`root_dir` is the agent's; a store that was never made is empty."""

    def __init__(self, root_dir: str) -> None:
        self.path = Path(root_dir, archives_manifest.DIRECTORY)

    def archives(self) -> tuple[Archive, ...]:
        """Every archive, oldest first. StoreError when the directory cannot be used."""
        try:
            with folder.opened(self.path, make=False) as directory:
                listed = set(os.listdir(directory))
                found = [_archive(directory, name, listed) for name in listed]
        except FileNotFoundError:
            return ()
        return tuple(sorted((a for a in found if a), key=lambda a: (a.created, a.name)))

    def find(self, name: str) -> Archive:
        """The archive of that name, or at that path. StoreError when there is none."""
        wanted = name.removeprefix(f"{self.path}/")
        for archive in self.archives():
            if archive.name == wanted:
                return archive
        raise StoreError(f"there is no archive {wanted!r} in {self.path}")

    def remove(self, archive: Archive) -> None:
        """Remove an archive and what lies beside it; one that is gone already is no error."""
        with folder.opened(self.path, make=False) as directory:
            for suffix in ("", archives_manifest.MANIFEST, archives_manifest.PIN):
                folder.remove(directory, archive.name + suffix)

    def pin(self, archive: Archive) -> None:
        with folder.opened(self.path, make=False) as directory:
            os.close(folder.create_file(directory, archive.name + archives_manifest.PIN))

    def unpin(self, archive: Archive) -> None:
        with folder.opened(self.path, make=False) as directory:
            folder.remove(directory, archive.name + archives_manifest.PIN)

    def note_pod(self, archive: Archive, *, gone_since: datetime | None) -> None:
        """Write down since when its pod is gone, None that it is there; needs a manifest."""
        if archive.manifest is None:
            return
        manifest = archive.manifest.with_gone_since(gone_since)
        beside = archive.name + archives_manifest.MANIFEST
        with folder.opened(self.path, make=False) as directory:
            replace_file(beside, manifest.to_json(), durable=True, directory=directory)

    def verify(self, archive: Archive) -> str:
        """What is wrong with an archive, "" when it is what its manifest says."""
        manifest = archive.manifest
        if manifest is None or not manifest.sha256:
            return "it has no manifest with a digest to compare with"
        with folder.opened(self.path, make=False) as directory:
            descriptor = folder.open_file(directory, archive.name)
        try:
            status = os.fstat(descriptor)
            if status.st_size != manifest.size_bytes:
                return f"it has {status.st_size} bytes, and had {manifest.size_bytes} when made"
            digest = digest_of(descriptor)
        finally:
            os.close(descriptor)
        if digest != manifest.sha256:
            return f"its SHA-256 is {digest}, and was {manifest.sha256} when it was made"
        mode = stat.S_IMODE(status.st_mode)
        return f"its mode is {mode:04o}: others can read it" if mode & 0o077 else ""

    def space(self) -> Space:
        """Of the file system; of the directory above while there is no store yet."""
        there = next(path for path in (self.path, *self.path.parents) if path.exists())
        status = os.statvfs(there)
        return Space(status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize)


def _archive(directory: int, name: str, listed: set[str]) -> Archive | None:
    """None for what is no archive, or is gone."""
    if not archives_manifest.is_archive(name):
        return None
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    manifest = _manifest(directory, name) if name + archives_manifest.MANIFEST in listed else None
    written = datetime.fromtimestamp(status.st_mtime, UTC)
    created = (manifest and manifest.created_at) or archives_manifest.time_of(name) or written
    return Archive(name, status.st_size, created, name + archives_manifest.PIN in listed, manifest)


def _manifest(directory: int, name: str) -> Manifest | None:
    """None when it cannot be read: the archive is then one without a known origin."""
    text = folder.read_small(directory, name + archives_manifest.MANIFEST)
    try:
        manifest = parse_manifest(text) if text is not None else None
    except ManifestError:
        return None
    return manifest if manifest and manifest.name == name else None


def record_of(archive: Archive, directory: str) -> dict[str, Any]:
    """One JSON object; what is not known of an archive without manifest is ""."""
    manifest = archive.manifest
    return {
        "name": archive.name,
        "path": f"{directory}/{archive.name}",
        "namespace": manifest.namespace if manifest else "",
        "pod": manifest.pod if manifest else archives_manifest.pod_of(archive.name),
        "uid": manifest.uid if manifest else "",
        "container": manifest.container if manifest else "",
        "containerID": manifest.container_id if manifest else "",
        "image": manifest.image if manifest else "",
        "runtime": manifest.runtime if manifest else "",
        "created": times.format_time(archive.created),
        "size": archive.size_bytes,
        "sha256": manifest.sha256 if manifest else "",
        "encryption": "age" if archive.name.endswith(archives_manifest.ENCRYPTED) else "",
        "pinned": archive.pinned,
        "podGoneSince": manifest.pod_gone_since if manifest else "",
    }
