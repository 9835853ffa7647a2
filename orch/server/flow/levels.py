"""Priority levels, and to which of them and to which flow a caller belongs.

Three levels, as the reference's priority and fairness: `exempt` (the privileged group, and health
paths without credentials), `system` (nodes and the control plane), `workload` (everybody else).
Only who calls decides, never what is asked for: a tenant cannot ask for the system's seats. A flow
is a user, the namespace of service accounts, or the address of callers whom nobody knows.
"""

from __future__ import annotations

import bisect
import sys
import weakref
from dataclasses import dataclass, field
from typing import NamedTuple

from orch.component.http.connection import Rank
from orch.component.http.fair_queue import Bounds, FairQueue, Flow
from orch.server.authn.credentials import ANONYMOUS, HEALTH_PATHS
from orch.wire.names import (
    GROUP_MASTERS,
    SYSTEM_NAMESPACE,
    USER_CONTROLLER_MANAGER,
    USER_SERVICE_ACCOUNT_PREFIX,
)
from orch.wire.records.authentication import Identity, node_name_of

WAIT_BUCKETS = (0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0)
WORKLOAD = "workload"  # the level of tenants
_SYSTEM_SHARE = 0.6  # of the seats; the rest is the workload's
_FLOW_SHARE = 0.25  # of its level's seats
WAITING_PER_FLOW = 200
_CONTROL_PLANE = "system:kube-"
_WAIT_SHARE = 0.25  # of the time for a request
_CONNECTION_SHARE = 0.75  # of the listener's, for the requests of tenants


class Limits(NamedTuple):
    """`seats` 0: no limit on requests in flight; `changes_per_s` are tenants', 0: no limit."""

    seats: int
    timeout_s: float
    max_connections: int
    changes_per_s: int = 0

    @property
    def wait_s(self) -> float:
        """How long a request may wait for its turn."""
        return self.timeout_s * _WAIT_SHARE


@dataclass(slots=True)
class Waits:
    """A histogram without a lock, of those that did wait."""

    count: int = 0
    counts: list[int] = field(default_factory=lambda: [0] * (len(WAIT_BUCKETS) + 1))  # by bucket
    sum_s: float = 0.0

    def observe(self, seconds: float) -> None:
        self.count += 1
        self.counts[bisect.bisect_left(WAIT_BUCKETS, seconds)] += 1
        self.sum_s += seconds


@dataclass(slots=True, eq=False)
class BusyConnections:
    """The connections with a request that is worked on: `most` of the listener's."""

    most: int
    _by_network: dict[str, int] = field(default_factory=dict)
    _total: int = 0

    def begin(self, network: str) -> bool:
        """Count one more, unless so many are busy already, or half of them in its network."""
        busy = self._by_network.get(network, 0)
        if self._total >= self.most or busy >= max(self.most // 2, 1):
            return False
        self._by_network[network] = busy + 1
        self._total += 1
        return True

    def end(self, network: str) -> None:
        """The opposite."""
        self._total -= 1
        self._by_network[network] -= 1
        if not self._by_network[network]:
            del self._by_network[network]


@dataclass(slots=True, eq=False)
class PriorityLevel:
    """`queue` None: nobody is kept waiting; `busy` None: connections are not counted."""

    name: str
    queue: FairQueue | None = None
    busy: BusyConnections | None = None
    body_bytes: int = 0  # of bodies that had to be waited for, until their requests are answered


@dataclass(slots=True, eq=False)
class Schema:
    """A kind of callers, and what became of their requests."""

    name: str
    level: PriorityLevel
    rank: Rank  # of the callers' connections
    executing: int = 0
    waiting: int = 0
    at_once: int = 0  # seats that were free
    rejected: dict[str, int] = field(default_factory=dict)  # by reason
    waited: Waits = field(default_factory=Waits)
    waited_in_vain: Waits = field(default_factory=Waits)


class Caller(Flow):
    """A flow with its requests that are long-running, or whose bodies had to be waited for."""

    __slots__ = ("bodies", "body_bytes", "identity", "long_running", "name", "schema")

    def __init__(self, schema: Schema, name: str) -> None:
        super().__init__()
        self.schema = schema
        self.name = name
        self.identity: Identity | None = None  # the last one that belonged here
        self.long_running = 0
        self.bodies = 0
        self.body_bytes = 0


class Levels:
    """The schemas in the order in which they are tried, and the callers that are there now."""

    def __init__(self, limits: Limits) -> None:
        seats, wait_s = limits.seats, limits.wait_s
        tenants = max(int(limits.max_connections * _CONNECTION_SHARE), 1)
        exempt = PriorityLevel("exempt")
        probes = PriorityLevel(
            "exempt",
            FairQueue(Bounds(starts_per_turn=1, wait_s=wait_s)),
            BusyConnections(tenants),
        )
        system = PriorityLevel("system", _queue(seats, _SYSTEM_SHARE, (8, 2), wait_s))
        workload = PriorityLevel(
            WORKLOAD,
            _queue(seats, 1 - _SYSTEM_SHARE, (2, 1), wait_s),
            BusyConnections(tenants),
        )
        self.exempt = Schema("exempt", exempt, Rank.PRIVILEGED)
        self.probes = Schema("probes", probes, Rank.STRANGER)
        self.nodes = Schema("system-nodes", system, Rank.KEPT)
        self.control_plane = Schema("system-controllers", system, Rank.KEPT)
        self.system_accounts = Schema("system-service-accounts", system, Rank.KEPT)
        self.accounts = Schema("service-accounts", workload, Rank.USER)
        self.users = Schema("global-default", workload, Rank.USER)
        self.strangers = Schema("catch-all", workload, Rank.STRANGER)
        self._callers: weakref.WeakValueDictionary[tuple[Schema, str], Caller] = (
            weakref.WeakValueDictionary()
        )

    def caller(self, identity: Identity | None, network: str, path: str) -> Caller:
        """`identity` None: not authenticated; `network` is where the request comes from."""
        schema, name = self._classify(identity, network, path)
        caller = self._callers.get((schema, name))
        if caller is None:
            caller = self._callers[schema, name] = Caller(schema, name)
        caller.identity = None if identity is ANONYMOUS else identity
        return caller

    def schemas(self) -> list[Schema]:
        return [value for value in vars(self).values() if isinstance(value, Schema)]

    def _classify(self, identity: Identity | None, network: str, path: str) -> tuple[Schema, str]:
        if identity is None or identity is ANONYMOUS:
            return self.probes if path in HEALTH_PATHS else self.strangers, network
        name = identity.name
        if GROUP_MASTERS in identity.groups:
            return self.exempt, name
        if node_name_of(identity) is not None:
            return self.nodes, name
        if name == USER_CONTROLLER_MANAGER or name.startswith(_CONTROL_PLANE):
            return self.control_plane, name
        if not name.startswith(USER_SERVICE_ACCOUNT_PREFIX):
            return self.users, name
        namespace = name[len(USER_SERVICE_ACCOUNT_PREFIX) :].partition(":")[0]
        system = namespace == SYSTEM_NAMESPACE
        return self.system_accounts if system else self.accounts, namespace


def _queue(seats: int, share: float, starts: tuple[int, int], wait_s: float) -> FairQueue:
    """Of a level with a share of the seats; `starts` are those by turn, of all and of one flow."""
    own = max(round(seats * share), 1) if seats else sys.maxsize
    each = max(round(own * _FLOW_SHARE), 1)
    return FairQueue(Bounds(own, each, *starts, WAITING_PER_FLOW, wait_s))
