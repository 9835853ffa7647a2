"""A checkpoint archive as a runtime writes it, without what CRIU would have dumped."""

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

ARCHIVE_MEMBERS = ("checkpoint/inventory.img", "config.dump", "spec.dump")


def write_archive(path: Path, members: Sequence[str]) -> None:
    """Write a small tar as the runtime would, with mode 0600."""
    with tarfile.open(path, "w") as archive:
        for name in members:
            data = name.encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    path.chmod(0o600)
