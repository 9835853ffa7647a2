"""The current usage of nodes and pods: the records of `metrics.k8s.io/v1beta1` (`kubectl top`).

They are computed, never stored, and only served together with the reference's other group names;
this service has no group of its own for them.
"""

from __future__ import annotations

from pydantic import Field

from orch.wire.records.kinds import Resource
from orch.wire.records.meta import ApiObject, WireModel

GROUP = "metrics.k8s.io"
VERSION = "v1beta1"
API_VERSION = f"{GROUP}/{VERSION}"


class NodeMetrics(ApiObject):
    """`usage` by resource name, as quantities; `window`: the time the CPU is an average over."""

    apiVersion: str = API_VERSION
    kind: str = "NodeMetrics"
    timestamp: str = ""
    window: str = ""
    usage: dict[str, str] = Field(default_factory=dict)


class ContainerMetrics(WireModel):
    name: str
    usage: dict[str, str] = Field(default_factory=dict)


class PodMetrics(ApiObject):
    apiVersion: str = API_VERSION
    kind: str = "PodMetrics"
    timestamp: str = ""
    window: str = ""
    containers: list[ContainerMetrics] = Field(default_factory=list)


_VERBS = ("get", "list")
NODE_USAGE = Resource(GROUP, VERSION, "nodes", "", NodeMetrics, False, verbs=_VERBS)
POD_USAGE = Resource(GROUP, VERSION, "pods", "", PodMetrics, True, verbs=_VERBS)
