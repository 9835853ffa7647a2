"""Which programs, rooms and files make up each package, and which libraries its rooms import.

The libraries follow from the imports: every module that the rooms reach, and of these whatever a
wheel provides, with all that its metadata requires.
"""

from __future__ import annotations

import ast
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email import message_from_bytes
from functools import cached_property
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_PROJECT = ("nodeagent", "orch")
_SHARED_ROOMS = ("orch.client", "orch.component", "orch.wire")


@dataclass(frozen=True, slots=True)
class Contents:
    """A package; `rooms` are its own, beside those that all programs share."""

    name: str
    summary: str
    programs: Mapping[str, str]  # name → module:function
    rooms: Sequence[str]

    def holds(self, module: str) -> bool:
        """Whether a module of the project belongs to it; what lies above a room does."""
        rooms = (*self.rooms, *_SHARED_ROOMS)
        return any(
            module == room or module.startswith(f"{room}.") or room.startswith(f"{module}.")
            for room in rooms
        )


PACKAGES = (
    Contents(
        "nodeagent",
        "the daemon of every host of a cluster",
        {
            "nodeagent": "nodeagent.main:main",
            "nodeagent-mounts": "nodeagent.pods.volumes.mount_helper:main",
        },
        ("nodeagent",),
    ),
    Contents(
        "orch-server",
        "API server and node lifecycle controller of a cluster",
        {
            "orch-apiserver": "orch.server.main:main",
            "orch-controller-manager": "orch.lifecycle.main:main",
            "orch-up": "orch.up.main:main",
        },
        ("orch.server", "orch.lifecycle", "orch.up"),
    ),
    Contents("orchctl", "client of a cluster", {"orchctl": "orch.ctl.main:main"}, ("orch.ctl",)),
)


class Wheel:
    """A wheel file: what it is for, what it provides and what it requires."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = canonicalize_name(path.name.split("-")[0])
        _, self.abi, self.platform = path.stem.rsplit("-", 3)[1:]

    @property
    def any_python(self) -> bool:
        """Whether the same file serves every version of Python."""
        return self.abi in ("none", "abi3")

    @cached_property
    def names(self) -> list[str]:
        with zipfile.ZipFile(self.path) as archive:
            return archive.namelist()

    @property
    def modules(self) -> set[str]:
        """The top-level names that it provides."""
        return {name.split("/")[0].split(".")[0] for name in self.names if "-info/" not in name}

    def requires(self, python: str) -> set[str]:
        """The names of the distributions that it requires there, extras left out."""
        metadata = next(name for name in self.names if name.endswith(".dist-info/METADATA"))
        with zipfile.ZipFile(self.path) as archive:
            listed = message_from_bytes(archive.read(metadata)).get_all("Requires-Dist", [])
        environment = {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}
        wanted = (Requirement(line) for line in listed)
        return {
            canonicalize_name(requirement.name)
            for requirement in wanted
            if requirement.marker is None or requirement.marker.evaluate(environment)
        }


def libraries(
    package: Contents, sources: Path, wheels: Sequence[Wheel], python: str
) -> list[Wheel]:
    """The wheels that the package's modules below `sources` need under that Python."""
    imported = set(_reached(package, sources))
    by_name = {wheel.name: wheel for wheel in wheels}
    waiting = [wheel.name for wheel in wheels if wheel.modules & imported]
    needed: dict[str, Wheel] = {}
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed[name] = by_name[name]
            waiting += needed[name].requires(python)
    return sorted(needed.values(), key=lambda wheel: wheel.name)


def _reached(package: Contents, sources: Path) -> Iterator[str]:
    """The top-level names that the package's rooms import, also by way of the shared rooms."""
    waiting = [
        module
        for path in sources.rglob("*.py")
        if _within(module := _module(path, sources), package.rooms)
    ]
    seen: set[str] = set()
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        if module.split(".")[0] not in _PROJECT:
            yield module.split(".")[0]
        elif (path := _file(module, sources)) is not None:
            waiting += _imports(path)


def _within(module: str, rooms: Iterable[str]) -> bool:
    return any(module == room or module.startswith(f"{room}.") for room in rooms)


def _module(path: Path, sources: Path) -> str:
    parts = path.relative_to(sources).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _file(module: str, sources: Path) -> Path | None:
    base = sources / module.replace(".", "/")
    return next((p for p in (base.with_suffix(".py"), base / "__init__.py") if p.is_file()), None)


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
