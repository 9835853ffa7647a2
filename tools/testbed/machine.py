"""The interface of test machines of either kind: run commands, write files, query systemd."""

from __future__ import annotations

import io
import subprocess
import tarfile
from abc import ABC, abstractmethod
from collections.abc import Mapping

from tools.runtime_lib.progress import RuntimeToolError

_WRITE = 'mkdir -p "${1%/*}"; cat > "$1.new"; chmod "$2" "$1.new"; mv "$1.new" "$1"'


class Machine(ABC):
    """A running Debian system with systemd."""

    @abstractmethod
    def run(
        self, *command: str, given: bytes = b"", timeout_s: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in it with `given` as its input; never raises for its exit code."""

    def check(self, *command: str, given: bytes = b"", timeout_s: float = 60.0) -> str:
        """Run a command that must succeed; what it printed."""
        done = self.run(*command, given=given, timeout_s=timeout_s)
        if done.returncode != 0:
            raise RuntimeToolError(f"`{' '.join(command)}` failed: {done.stdout}{done.stderr}")
        return done.stdout

    def write(self, path: str, text: str, *, mode: int = 0o644) -> None:
        """Write a file in one step, its directories included."""
        self.check("sh", "-euc", _WRITE, "sh", path, f"{mode:o}", given=text.encode())

    def write_all(self, files: Mapping[str, tuple[str, int]]) -> None:
        """Write files with their modes by a single command; path → text and mode."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for path, (text, mode) in files.items():
                entry, data = tarfile.TarInfo(path.lstrip("/")), text.encode()
                entry.size, entry.mode = len(data), mode
                archive.addfile(entry, io.BytesIO(data))
        self.check("tar", "-C", "/", "-xmf", "-", given=packed.getvalue())

    def show(self, unit: str, name: str) -> str:
        """A property of a unit, as `systemctl show` prints it."""
        return self.check("systemctl", "show", "--value", "-p", name, unit).strip()

    def journal(self, unit: str) -> str:
        """The lines of a unit's journal so far."""
        self.run("journalctl", "--sync")
        return self.check("journalctl", "--no-pager", "-o", "cat", "-u", unit)
