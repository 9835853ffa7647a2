"""`--feature-gates`: the same words for every daemon.

The node agent's is a field of its configuration, so it uses `gates` alone.
"""

from __future__ import annotations

import argparse

from orch.component import usage
from orch.component.daemon import SetupError
from orch.component.features import FeatureError, Features


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the flag; `features_of` reads it back."""
    parser.add_argument(
        "--feature-gates",
        type=gates,
        default={},
        metavar="NAME=true|false,…",
        help="features to switch on or off",
    )


def features_of(values: argparse.Namespace) -> Features:
    """The features of the release that `versionflags` read; SetupError names a wrong gate."""
    try:
        return Features(values.feature_gates, values.emulated_version)
    except FeatureError as error:
        raise SetupError(f"--feature-gates: {error}") from None


def gates(text: str) -> dict[str, bool]:
    """A flag's type: what is to be on and off, by name."""
    found = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = pair.partition("=")
        try:
            found[name.strip()] = usage.boolean(value.strip())
        except argparse.ArgumentTypeError:
            text = f"{pair!r} is not NAME=true or NAME=false"
            raise argparse.ArgumentTypeError(text) from None
    return found
