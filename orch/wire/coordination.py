"""The Lease record (`coordination.orch.io/v1`): a node's heartbeat, a leader's claim."""

from __future__ import annotations

from pydantic import Field

from orch.wire.meta import ApiObject, WireModel
from orch.wire.names import COORDINATION_GROUP


class LeaseSpec(WireModel):
    holderIdentity: str | None = None
    leaseDurationSeconds: int | None = None
    acquireTime: str | None = None
    renewTime: str | None = None  # MicroTime
    leaseTransitions: int | None = None


class Lease(ApiObject):
    apiVersion: str = f"{COORDINATION_GROUP}/v1"
    kind: str = "Lease"
    spec: LeaseSpec = Field(default_factory=LeaseSpec)
