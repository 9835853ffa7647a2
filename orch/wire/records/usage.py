"""The current usage of nodes and pods: the records of `metrics.k8s.io` (`kubectl top`), the
same in both its versions.

They are computed, never stored, and only served together with the reference's other group names;
this service has no group of its own for them.
"""

from __future__ import annotations

from pydantic import Field

from orch.wire.records.kinds import Resource
from orch.wire.records.meta import ApiObject, WireModel

GROUP = "metrics.k8s.io"
VERSIONS = ("v1", "v1beta1")  # clients are to prefer the first
API_VERSIONS = tuple(f"{GROUP}/{version}" for version in VERSIONS)


class NodeMetrics(ApiObject):
    """`usage` by resource name, as quantities; `window`: the time the CPU is an average over."""

    apiVersion: str = API_VERSIONS[0]
    kind: str = "NodeMetrics"
    timestamp: str = ""
    window: str = ""
    usage: dict[str, str] = Field(default_factory=dict)


class ContainerMetrics(WireModel):
    name: str
    usage: dict[str, str] = Field(default_factory=dict)


class PodMetrics(ApiObject):
    apiVersion: str = API_VERSIONS[0]
    kind: str = "PodMetrics"
    timestamp: str = ""
    window: str = ""
    containers: list[ContainerMetrics] = Field(default_factory=list)


_VERBS = ("get", "list")
USAGE = tuple(
    Resource(GROUP, version, plural, "", model, namespaced, verbs=_VERBS)
    for version in VERSIONS
    for plural, model, namespaced in (("nodes", NodeMetrics, False), ("pods", PodMetrics, True))
)
