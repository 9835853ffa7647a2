"""`python -m tools.packages deb|rpm|stage`: build packages of this tree into a folder."""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

from orch.wire.names import VERSION
from tools.packages import deb, staging, wheels
from tools.packages.contents import PACKAGES

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(prog="tools.packages", description=__doc__)
    parser.add_argument(
        "what", choices=("deb", "rpm", "stage"), help="package files, or their trees"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where to put them")
    parser.add_argument("--work", type=Path, default=ROOT / "build", help="wheels, trees")
    parser.add_argument("--python", default=",".join(staging.PYTHONS), metavar="X.Y,…")
    parser.add_argument("--package", default="", help="this one alone")
    parser.add_argument("--version", default="", help="instead of the project's, for tests")
    values = parser.parse_args()
    own = wheels.own(ROOT, values.work / "own")
    lock, kept = ROOT / "requirements.lock", values.work / "wheels"
    found = {python: wheels.locked(lock, kept, python) for python in values.python.split(",")}
    for package in PACKAGES:
        if values.package in ("", package.name):
            tree = values.work / "trees" / package.name
            staging.stage(package, tree, own, found)
            deb.add_files(package, tree, ROOT / "packaging")
            if values.what == "deb":
                tree = deb.build(package, tree, ROOT / "packaging", values.out, values.version)
            print(tree)
    if values.what == "rpm":
        _pack_rpms(values.work, values.out)


def _pack_rpms(work: Path, into: Path) -> None:
    """Every package of the recipe, from the trees of all."""
    defines = {"tree": work / "trees", "release_version": VERSION[1:], "_topdir": work / "rpm",
               "_rpmdir": into}  # fmt: skip
    flags = [part for name, value in defines.items() for part in ("--define", f"{name} {value}")]
    subprocess.run(
        ["rpmbuild", "-bb", "--quiet", *flags, ROOT / "packaging/nodeagent.spec"], check=True
    )


if __name__ == "__main__":
    main()
