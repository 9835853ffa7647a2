"""Lays out the files of a package below a folder as they will lie below `/`.

`/usr/lib/PACKAGE` is a virtual environment around the system's python3: the project and what
serves every Python are in `shared`, and each version of Python has its own folder for the rest, so
that a package survives the system's upgrade to another Python. Nothing is compiled here: the
package's script does that for the Python it finds.
"""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from tools.packages.contents import Contents, Wheel, libraries

PYTHONS = ("3.11", "3.13", "3.14")  # of Debian 12, 13 and sid
_PROGRAM = """#!/usr/lib/{package}/bin/python -I
import sys

from {module} import {function}

sys.exit({function}())
"""
_ENVIRONMENT = "home = /usr/bin\ninclude-system-site-packages = false\n"
_SOURCES = (".c", ".h", ".pyi", ".pyx", ".pxd", ".pxi", ".proto", ".typed", ".cpp", ".hpp")


def stage(package: Contents, root: Path, own: Wheel, wheels: dict[str, Sequence[Wheel]]) -> None:
    """Fill `root`; `wheels` are those of each Python, `own` is the project's."""
    shutil.rmtree(root, ignore_errors=True)
    home = root / "usr/lib" / package.name
    shared = home / "shared"
    _unpack_own(package, own, shared)
    for python, found in wheels.items():
        site = home / f"lib/python{python}/site-packages"
        site.mkdir(parents=True)
        (site / "shared.pth").write_text("../../../shared\n")
        for wheel in libraries(package, shared, found, python):
            _unpack(wheel, shared if wheel.any_python else site)
    _add_programs(package, root)
    _add_data(package, own, root)


def _unpack_own(package: Contents, own: Wheel, into: Path) -> None:
    """The project's modules that belong to the package, with the data beside them."""
    with zipfile.ZipFile(own.path) as archive:
        for name in own.names:
            folder = name.rpartition("/")[0].replace("/", ".")
            module = name.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
            if package.holds(module) or (package.holds(folder) and not name.endswith(".py")):
                if name.endswith(_SOURCES) or ".dist-info/" in name or ".data/" in name:
                    continue
                archive.extract(name, into)


def _unpack(wheel: Wheel, into: Path) -> None:
    with zipfile.ZipFile(wheel.path) as archive:
        for name in wheel.names:
            if not name.endswith((*_SOURCES, "/")) and ".data/" not in name:
                archive.extract(name, into)


def _add_programs(package: Contents, root: Path) -> None:
    home = root / "usr/lib" / package.name
    (home / "bin").mkdir()
    (home / "pyvenv.cfg").write_text(_ENVIRONMENT)
    (home / "bin/python").symlink_to("/usr/bin/python3")
    (root / "usr/bin").mkdir(parents=True)
    for program, target in package.programs.items():
        module, _, function = target.partition(":")
        path = home / "bin" / program
        path.write_text(_PROGRAM.format(package=package.name, module=module, function=function))
        path.chmod(0o755)
        (root / "usr/bin" / program).symlink_to(f"../lib/{package.name}/bin/{program}")


def _add_data(package: Contents, own: Wheel, root: Path) -> None:
    """Units, manual pages and completions of the package's programs; the docs with each."""
    with zipfile.ZipFile(own.path) as archive:
        for name in own.names:
            _, _, place = name.partition(".data/data/")
            if place and _belongs(place, package.programs):
                target = root / "usr" / place.replace("doc/nodeagent/", f"doc/{package.name}/")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(name))


def _belongs(place: str, programs: Iterable[str]) -> bool:
    name = place.rsplit("/", 1)[-1].removeprefix("_")
    stem = name.rsplit(".", 1)[0] if name.rsplit(".", 1)[-1] in _ENDINGS else name
    of_program = stem in programs or stem.removesuffix("-renew") in programs
    return place.startswith("share/doc/") or of_program


_ENDINGS = ("service", "socket", "timer", "fish", "1", "8")
