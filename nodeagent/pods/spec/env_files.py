"""Files that init containers write for the environment of later containers; pure.

The reference's format (release 1.36): lines `NAME='value'`, the value as it stands between single
quotes, over several lines too; blank lines, and those that begin with `#`, are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from nodeagent.pods.spec.env import SpecError
from orch.wire.records.pods import Container

MAX_BYTES = 64 << 10  # of a file
MAX_FILES = 32  # of a container
_LINE = re.compile(r"[ \t]*(?:#[^\n]*|([^\s='#][^\s=']*)[ \t]*=[ \t]*'([^']*)'[ \t]*)?(?:\n|\Z)")


def wanted(container: Container) -> Sequence[tuple[str, str]]:
    """Volume and path of each file that the container's variables come from."""
    sources = (variable.valueFrom for variable in container.env or ())
    found = (source.fileKeyRef for source in sources if source is not None)
    return [*dict.fromkeys((ref.volumeName, ref.path) for ref in found if ref is not None)]


def names(path: str) -> tuple[str, ...]:
    """The directories that lead to a file from its volume, and the file. SpecError for a path that
    leads elsewhere.
    """
    found = PurePosixPath(path)
    if not found.parts or found.is_absolute() or ".." in found.parts or "\0" in path:
        raise SpecError("its path must be relative, without '..' and NUL")
    return found.parts


def parse(text: str) -> Mapping[str, str]:
    """The values by name, of which the first counts. SpecError names the first wrong line."""
    values: dict[str, str] = {}
    position = 0
    while position < len(text):
        line = _LINE.match(text, position)
        if line is None or line.end() == position:
            number = text.count("\n", 0, position) + 1
            raise SpecError(f"line {number} is not NAME='value', a comment or blank")
        if line[1] is not None:
            values.setdefault(line[1], line[2])
        position = line.end()
    return values
