"""Metrics of the node lifecycle controller; names follow the reference's `node_collector_*`."""

from __future__ import annotations

from collections.abc import Mapping

from orch.component.diagnostics.metrics import Registry
from orch.component.flags.stability import MetricPolicy
from orch.lifecycle.decide import zones
from orch.wire.records.core import Node


class BindingMetrics:
    """What binding pods to nodes comes to: nothing, unless it is asked for."""

    def __init__(self, registry: Registry) -> None:
        self.attempts = registry.counter(
            "orch_pod_binding_attempts_total",
            "Tries to give a pod a node, by result: scheduled, unschedulable or error.",
            ("result",),
        )
        self.pending = registry.gauge(
            "orch_pod_binding_pending_pods",
            "Pods that wait for this controller to give them a node.",
        )


class LifecycleMetrics:
    """`evictions` counts NoExecute taints put on nodes; the rest shows the last decision."""

    def __init__(self, policy: MetricPolicy | None = None) -> None:
        """With a policy the page has process metrics, and the policy disables some metrics."""
        self.registry = Registry(policy)
        if policy is not None:
            self.registry.add_process_metrics()
        make = self.registry
        self.evictions = make.counter(
            "node_collector_evictions_total",
            "Number of nodes tainted NoExecute since this process started.",
            ("zone",),
        )
        self.leader = make.gauge(
            "orch_controller_leader", "Whether this process decides: 1, or 0 while it stands by."
        )
        self.master = make.gauge(
            "leader_election_master_status",
            "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup,"
            " 1 indicates master. 'name' is the string used to identify the lease.",
            ("name",),
        )
        self.view_age = make.gauge(
            "node_collector_view_age_seconds", "How old the view of the last decision could be."
        )
        self.decision = make.histogram(
            "node_collector_decision_duration_seconds",
            "Time from a tick to the end of its actions.",
        )
        self.failures = make.counter("node_collector_action_failures_total", "Actions that failed.")
        self.binding = BindingMetrics(self.registry)
        self._evicted: set[str] = set()  # zones of evictions
        self._size = make.gauge("node_collector_zone_size", "Nodes per zone.", ("zone",))
        self._unhealthy = make.gauge(
            "node_collector_unhealthy_nodes_in_zone",
            "Nodes that are not ready, per zone.",
            ("zone",),
        )

    def count_eviction(self, zone: str) -> None:
        self._evicted.add(zone)
        self.evictions.labels(zone=zone).inc()

    def show_zones(self, nodes: Mapping[str, Node], ready: Mapping[str, bool]) -> None:
        """Show the current zones; others disappear: a node could name ever new ones."""
        for gone in self._evicted.difference(map(zones.zone_of, nodes.values())):
            self._evicted.remove(gone)
            self.evictions.remove(gone)
        counts: dict[str, list[int]] = {}
        for name, node in nodes.items():
            count = counts.setdefault(zones.zone_of(node).replace("\0", ""), [0, 0])
            count[0] += 1
            count[1] += not ready.get(name, False)
        self._size.clear()
        self._unhealthy.clear()
        for zone, (size, unhealthy) in counts.items():
            self._size.labels(zone=zone).set(size)
            self._unhealthy.labels(zone=zone).set(unhealthy)
