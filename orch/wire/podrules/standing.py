"""How a pod stands: where it comes from, whether the node needs it, when it is over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orch.wire import names, raw
from orch.wire.records.pods import Pod

FILE, URL, API = "file", "http", "api"  # values of the source annotation
FINAL_PHASES = ("Succeeded", "Failed")
DEFAULT_GRACE_S = 30


def is_static(pod: Pod) -> bool:
    """Whether the pod comes from a file or a URL and not from the API."""
    return pod.metadata.annotation(names.ANNOTATION_CONFIG_SOURCE) in (FILE, URL)


def is_mirror(pod: Pod) -> bool:
    """Whether the pod only shows a static pod of its node: deleting it stops nothing."""
    return names.ANNOTATION_CONFIG_MIRROR in (pod.metadata.annotations or {})


def mirror_hash(document: Mapping[str, Any]) -> str | None:
    """What a document says it mirrors; None when it is not a mirror pod."""
    annotations = raw.mapping(document, "metadata", "annotations")
    return annotations.get(names.ANNOTATION_CONFIG_MIRROR)


def is_critical(pod: Pod) -> bool:
    """Whether the node gives the pod up for nothing."""
    return is_static(pod) or (pod.spec.priority or 0) >= names.CRITICAL_PRIORITY
