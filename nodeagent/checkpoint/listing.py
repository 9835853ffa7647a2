"""An archive as programs are told of it: by `GET /checkpoint` and by the commands; pure."""

from __future__ import annotations

from typing import Any

from nodeagent.checkpoint import names
from nodeagent.checkpoint.bounds import Archive
from orch.wire import times


def record_of(archive: Archive, directory: str) -> dict[str, Any]:
    """One JSON object; what is not known of an archive without manifest is ""."""
    manifest = archive.manifest
    return {
        "name": archive.name,
        "path": f"{directory}/{archive.name}",
        "namespace": manifest.namespace if manifest else "",
        "pod": manifest.pod if manifest else names.pod_of(archive.name),
        "uid": manifest.uid if manifest else "",
        "container": manifest.container if manifest else "",
        "containerID": manifest.container_id if manifest else "",
        "image": manifest.image if manifest else "",
        "runtime": manifest.runtime if manifest else "",
        "created": times.format_time(archive.created),
        "size": archive.size_bytes,
        "sha256": manifest.sha256 if manifest else "",
        "encryption": "age" if archive.name.endswith(names.ENCRYPTED) else "",
        "pinned": archive.pinned,
        "podGoneSince": manifest.pod_gone_since if manifest else "",
    }
