"""What the files of the checkpoint store are called; pure.

An archive is `checkpoint-<pod>_<namespace>-<container>-<local time, RFC 3339 to the second>.tar`,
with `.age` behind it when it is encrypted. Beside it lie its manifest and, when it is pinned, an
empty file; both carry its whole name. What is not finished has a hidden name.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

DIRECTORY = "checkpoints"
MANIFEST = ".json"
PIN = ".keep"
ENCRYPTED = ".age"
MAX_BYTES = 255  # of a file name on every Linux file system
_LONGEST_SUFFIX = max(len(MANIFEST), len(PIN))

# The namespace cannot be told from the container in `web_a-b-c`: only the manifest can say.
_ARCHIVE = re.compile(
    r"checkpoint-(?P<pod>[a-z0-9.-]+)_(?P<rest>[a-z0-9-]+)-"
    r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:Z|[+-]\d\d:\d\d))\.tar(?:\.age)?"
)


def archive_name(namespace: str, pod: str, container: str, moment: datetime) -> str:
    """The name of an archive made at `moment`, whose zone becomes the machine's."""
    stamp = moment.astimezone().isoformat(timespec="seconds").replace("+00:00", "Z")
    return f"checkpoint-{pod}_{namespace}-{container}-{stamp}.tar"


def is_archive(name: str) -> bool:
    return _ARCHIVE.fullmatch(name) is not None


def pod_of(name: str) -> str:
    """The pod that an archive's name tells; "" when it is no archive's name."""
    found = _ARCHIVE.fullmatch(name)
    return found["pod"] if found else ""


def owner_of(name: str) -> str:
    """What the name tells of the container, the same for all archives of one container."""
    found = _ARCHIVE.fullmatch(name)
    return f"{found['pod']}_{found['rest']}" if found else ""


def time_of(name: str) -> datetime | None:
    """When an archive was made, in UTC; None when the name does not tell."""
    found = _ARCHIVE.fullmatch(name)
    try:
        return datetime.fromisoformat(found["time"]).astimezone(UTC) if found else None
    except ValueError:
        return None


def excess_bytes(name: str) -> int:
    """How much too long an archive's name is for a file and for those beside it; 0 if it fits."""
    return max(0, len(name.encode()) + _LONGEST_SUFFIX - MAX_BYTES)
