"""The file that says which port a daemon bound (`--port-file`), for those that let it pick one."""

from __future__ import annotations

import os
from pathlib import Path

from orch.component.daemon import SetupError


def write_port(path: Path | None, port: int) -> None:
    """Whole or not at all: who waits for the file must not read half a number. None: no file.

    SetupError names the file that cannot be written. Blocking I/O.
    """
    if path is None:
        return
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.write_text(f"{port}\n")
        os.replace(partial, path)
    except OSError as error:
        raise SetupError(f"cannot write --port-file {path}: {error.strerror}") from error
