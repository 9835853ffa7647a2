"""The wheels that packages are made of: the project's own, and the locked ones for each Python.

They are kept in a folder and fetched once: later builds need no network. Which index they come
from is the machine's setting, and the hashes of requirements.lock decide what is accepted.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.packages.contents import Wheel

_PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


def own(sources: Path, into: Path) -> Wheel:
    """Build the project's wheel, and nothing else."""
    shutil.rmtree(into, ignore_errors=True)
    _run("wheel", "--no-deps", "--no-build-isolation", "-w", into, sources)
    return Wheel(next(into.glob("*.whl")))


def locked(lock: Path, kept: Path, python: str) -> Sequence[Wheel]:
    """The locked wheels for that version of Python; `kept` holds those of earlier builds."""
    folder = kept / python
    stamp, digest = folder / "lock", hashlib.sha256(lock.read_bytes()).hexdigest()
    if not stamp.is_file() or stamp.read_text() != digest:
        shutil.rmtree(folder, ignore_errors=True)
        versioned = ("--python-version", python, "--no-deps", "--require-hashes")
        _run("download", *versioned, "-d", folder, "-r", lock)
        for source in [path for path in folder.iterdir() if path.suffix != ".whl"]:
            _run("wheel", "--no-deps", "-w", folder, source)
            source.unlink()
        stamp.write_text(digest)
    return [Wheel(path) for path in sorted(folder.glob("*.whl"))]


def _run(action: str, *arguments: object) -> None:
    done = subprocess.run(
        [*_PIP, action, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"pip {action} failed: {done.stderr.strip()}")
