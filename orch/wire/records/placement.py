"""Which nodes a pod is for, as far as agents judge it themselves."""

from __future__ import annotations

from pydantic import Field

from orch.wire.records.meta import WireModel


class NodeSelectorRequirement(WireModel):
    key: str = ""
    operator: str = ""  # In | NotIn | Exists | DoesNotExist | Gt | Lt
    values: list[str] | None = None


class NodeSelectorTerm(WireModel):
    """All requirements must hold; without any, none does."""

    matchExpressions: list[NodeSelectorRequirement] | None = None
    matchFields: list[NodeSelectorRequirement] | None = None


class NodeSelector(WireModel):
    """One of the terms must fit."""

    nodeSelectorTerms: list[NodeSelectorTerm] = Field(default_factory=list)


class NodeAffinity(WireModel):
    requiredDuringSchedulingIgnoredDuringExecution: NodeSelector | None = None


class Affinity(WireModel):
    nodeAffinity: NodeAffinity | None = None
