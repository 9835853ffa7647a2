"""The flags that govern a program's metrics, the same for every program.

`--disabled-metrics`, `--show-hidden-metrics-for-version`, `--allow-metric-labels` and its manifest
become one `MetricPolicy` for the registry. A manifest that cannot be used is logged and ignored:
metrics are no reason not to start.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from orch.component.stability import MetricPolicy, read_policy

log = logging.getLogger(__name__)


def add_to(parser: argparse.ArgumentParser) -> None:
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
    """What the flags ask for."""
    lists = dict(values.allow_metric_labels)
    if not lists and values.allow_metric_labels_manifest:
        lists = _read_manifest(Path(values.allow_metric_labels_manifest))
    return read_policy(
        disabled=values.disabled_metrics,
        show_hidden_for=values.show_hidden_metrics_for_version,
        allowed_labels=lists,
    )


def _read_manifest(path: Path) -> dict[str, str]:
    from orch.component import yamlfile  # most programs have no manifest

    try:
        lists = yamlfile.read_yaml_file(path).value
        if not isinstance(lists, dict) or not all(isinstance(v, str) for v in lists.values()):
            raise ValueError("it is not a map from METRIC,LABEL to VALUE,VALUE…")
        read_policy(allowed_labels=lists)
    except (OSError, ValueError, yamlfile.YamlError) as error:
        log.error("ignoring the manifest of metric labels %s: %s", path, error)
        return {}
    return lists


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _previous_release(text: str) -> str:
    try:
        read_policy(show_hidden_for=text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _label_list(text: str) -> tuple[str, str]:
    key, found, values = text.partition("=")
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not METRIC,LABEL=VALUE,…")
    try:
        read_policy(allowed_labels={key: values})
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return key, values
