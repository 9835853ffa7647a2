"""Service accounts: whom a pod speaks to the API as; every namespace has one from the start."""

from __future__ import annotations

from orch.server.strategy.base import Strategy
from orch.wire.kinds import SERVICE_ACCOUNTS

STRATEGY = Strategy(SERVICE_ACCOUNTS, returns_deleted=True)
