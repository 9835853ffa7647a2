"""`--version` and `--emulated-version`, the same for every program.

An emulated version is the release before this one, or one of the two before that: stages and
defaults of features are as they were then, so that an upgrade can be taken back feature by feature.
"""

from __future__ import annotations

import argparse

from orch.component.stability import CURRENT, Release, parse_release
from orch.wire.version import VERSION

_OLDEST = CURRENT.minor - 3


def add_to(parser: argparse.ArgumentParser, program: str) -> None:
    """Add both flags; the second is read as `values.emulated_version`, a Release."""
    parser.add_argument("--version", action="version", version=f"{program} {VERSION}")
    parser.add_argument(
        "--emulated-version",
        type=_release,
        default=CURRENT,
        metavar="X.Y",
        help="have features as that release had them",
    )


def _release(text: str) -> Release:
    try:
        release = parse_release(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if release.major != CURRENT.major or not _OLDEST <= release.minor <= CURRENT.minor:
        raise argparse.ArgumentTypeError(
            f"{text!r} cannot be emulated: give {CURRENT.major}.{_OLDEST} to {CURRENT}"
        )
    return Release(release.major, release.minor)
