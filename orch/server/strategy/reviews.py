"""Reviews: answered, never stored; what they must look like is in `orch.server.reviewcheck`."""

from __future__ import annotations

from orch.server.strategy.base import Strategy
from orch.wire.kinds import REVIEWS

STRATEGIES = tuple(Strategy(resource) for resource in REVIEWS)
