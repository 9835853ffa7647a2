"""Command-line flags that all programs share: features, versions, metrics; their value types.

An emulated version is one of the three releases before this one: features have the stages and
defaults of then, so that an upgrade can be reverted feature by feature. The metric flags become a
`MetricPolicy`; an unusable label manifest is logged and ignored, and never prevents a start. The
agent's feature gates are a field of its configuration, so it uses `gates` alone.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from orch.component.flags.features import FeatureError, Features
from orch.component.flags.stability import (
    CURRENT,
    MetricPolicy,
    Release,
    parse_release,
    read_policy,
)
from orch.component.process.daemon import SetupError
from orch.wire.names import VERSION
from orch.wire.times import parse_duration

log = logging.getLogger(__name__)

USAGE = 2  # the exit code

T = TypeVar("T")
Record = TypeVar("Record", bound=BaseModel)


class Parser(argparse.ArgumentParser):
    """Reports an error in one line, without listing every flag."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: error: {message}; see '{self.prog} --help'\n")


def flag_type(read: Callable[[str], T]) -> Callable[[str], T]:
    """A flag's type that reports the text of `read`'s ValueError."""

    def parse(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse


duration = flag_type(parse_duration)  # seconds of `5m30s`


@flag_type
def whole_number(text: str) -> int:
    """A flag's type: a number from 0 to 999,999,999."""
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ValueError(f"{text!r} is not a whole number of at least 0")
    return int(text)


@flag_type
def boolean(text: str) -> bool:
    """A flag's type: `true` or `1`, `false` or `0`."""
    if text.lower() in ("true", "1"):
        return True
    if text.lower() in ("false", "0"):
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def add_feature_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flag; `features_of` reads it back."""
    parser.add_argument(
        "--feature-gates",
        type=gates,
        default={},
        metavar="NAME=true|false,…",
        help="features to switch on or off",
    )


def features_of(values: argparse.Namespace) -> Features:
    """The features of the emulated release; SetupError names a wrong gate."""
    try:
        return Features(values.feature_gates, values.emulated_version)
    except FeatureError as error:
        raise SetupError(f"--feature-gates: {error}") from None


def gates(text: str) -> dict[str, bool]:
    """A flag's type: gates to switch on or off, by name."""
    found = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = pair.partition("=")
        try:
            found[name.strip()] = boolean(value.strip())
        except argparse.ArgumentTypeError:
            text = f"{pair!r} is not NAME=true or NAME=false"
            raise argparse.ArgumentTypeError(text) from None
    return found


_OLDEST = CURRENT.minor - 3


def add_version_flags(parser: argparse.ArgumentParser, program: str) -> None:
    """Add both flags; the second is read as `values.emulated_version`, a Release."""
    parser.add_argument("--version", action="version", version=f"{program} {VERSION}")
    parser.add_argument(
        "--emulated-version",
        type=_release,
        default=CURRENT,
        metavar="X.Y",
        help="have features as that release had them",
    )


@flag_type
def _release(text: str) -> Release:
    release = parse_release(text)
    if release.major != CURRENT.major or not _OLDEST <= release.minor <= CURRENT.minor:
        raise ValueError(
            f"{text!r} cannot be emulated: give {CURRENT.major}.{_OLDEST} to {CURRENT}"
        )
    return Release(release.major, release.minor)


def add_metric_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags; `policy_of` reads them back."""
    group = parser.add_argument_group("metrics")
    group.add_argument(
        "--disabled-metrics",
        type=_names,
        default=[],
        metavar="NAME,…",
        help="metrics never to expose",
    )
    group.add_argument(
        "--show-hidden-metrics-for-version",
        type=_previous_release,
        default="",
        metavar="X.Y",
        help="the previous release: expose what was hidden in this one",
    )
    group.add_argument(
        "--allow-metric-labels",
        type=_label_list,
        action="append",
        default=[],
        metavar="METRIC,LABEL=VALUE,…",
        help="the only values of a label; others become 'unexpected' (repeatable)",
    )
    group.add_argument(
        "--allow-metric-labels-manifest",
        default="",
        metavar="FILE",
        help="the same as a YAML map; ignored when the flag is given",
    )


def policy_of(values: argparse.Namespace) -> MetricPolicy:
    """The policy from the flags' values."""
    lists = dict(values.allow_metric_labels)
    if not lists and values.allow_metric_labels_manifest:
        lists = _read_manifest(Path(values.allow_metric_labels_manifest))
    return read_policy(
        disabled=values.disabled_metrics,
        show_hidden_for=values.show_hidden_metrics_for_version,
        allowed_labels=lists,
    )


def _read_manifest(path: Path) -> dict[str, str]:
    from orch.component import yaml_file  # most programs have no manifest

    try:
        lists = yaml_file.read_yaml_file(path).value
        if not isinstance(lists, dict) or not all(isinstance(v, str) for v in lists.values()):
            raise ValueError("it is not a map from METRIC,LABEL to VALUE,VALUE…")
        read_policy(allowed_labels=lists)
    except (OSError, ValueError, yaml_file.YamlError) as error:
        log.error("ignoring the manifest of metric labels %s: %s", path, error)
        return {}
    return lists


def read_file(flag: str, path: Path, record: type[Record]) -> Record:
    """The record in the YAML file that a flag names; SetupError names the line and the field."""
    from orch.component import yaml_file  # most programs have no such file

    try:
        document = yaml_file.read_yaml_file(path)
        return record.model_validate(document.value)
    except OSError as error:
        raise SetupError(f"{flag}: cannot read {path}: {error.strerror}") from error
    except yaml_file.YamlError as error:
        raise SetupError(f"{flag}: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        shown = yaml_file.show_path(first["loc"]) or "the file"
        place = document.place(first["loc"])
        raise SetupError(f"{flag}: {place}: {shown}: {first['msg']}") from error


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


@flag_type
def _previous_release(text: str) -> str:
    read_policy(show_hidden_for=text)
    return text


@flag_type
def _label_list(text: str) -> tuple[str, str]:
    key, found, values = text.partition("=")
    if not found:
        raise ValueError(f"{text!r} is not METRIC,LABEL=VALUE,…")
    read_policy(allowed_labels={key: values})
    return key, values
