"""Every metric name the specification promises: its stability tier and its owner; pure data.

A program that exposes one of these names takes the tier from here. `served`: a program of this
release exposes it, at least one name of a family; those of components outside this system are never
served.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

Tier = Literal["ALPHA", "BETA", "STABLE"]

AGENT: Final = "nodeagent"
APISERVER: Final = "orch-apiserver"
CONTROLLER: Final = "orch-controller-manager"
EVERY: Final = "every program"
CLIENTS: Final = "nodeagent, orch-controller-manager"
OUTSIDE: Final = "outside: "  # what an owner that is not part of this system begins with
SCHEDULER: Final = f"{OUTSIDE}scheduler"
WORKLOADS: Final = f"{OUTSIDE}workload controllers"


@dataclass(frozen=True, slots=True)
class Entry:
    """A name, or a family of names when it ends in `_*`."""

    name: str
    tier: Tier
    owner: str
    served: bool
    reason: str = ""  # why a program of this system does not expose it


# spec.md, "Metric stability tiers and named metrics"; a `+` marks what this release exposes.
_PROMISED: Mapping[Tier, Mapping[str, str]] = {
    "STABLE": {
        APISERVER: """
            +apiserver_admission_controller_admission_duration_seconds
            +apiserver_admission_step_admission_duration_seconds
            +apiserver_admission_webhook_admission_duration_seconds
            +apiserver_current_inflight_requests
            +apiserver_longrunning_requests
            +apiserver_request_duration_seconds
            +apiserver_request_total
            +apiserver_requested_deprecated_apis
            +apiserver_response_sizes
            +apiserver_storage_objects
            +apiserver_storage_size_bytes
        """,
        AGENT: """
            +container_cpu_usage_seconds_total
            +container_memory_working_set_bytes
            +container_start_time_seconds
            +node_cpu_usage_seconds_total
            +node_memory_working_set_bytes
            +pod_cpu_usage_seconds_total
            +pod_memory_working_set_bytes
            +resource_scrape_error
        """,
        CONTROLLER: "+node_collector_evictions_total",
        EVERY: "+orch_healthcheck +orch_healthchecks_total",
        WORKLOADS: """
            cronjob_controller_job_creation_skew_duration_seconds
            job_controller_job_pods_finished_total
            job_controller_job_sync_duration_seconds
            job_controller_job_syncs_total
            job_controller_jobs_finished_total
        """,
        SCHEDULER: """
            orch_pod_resource_limit
            orch_pod_resource_request
            scheduler_framework_extension_point_duration_seconds
            scheduler_pending_pods
            scheduler_pod_scheduling_attempts
            scheduler_preemption_attempts_total
            scheduler_preemption_victims
            scheduler_queue_incoming_pods_total
            scheduler_schedule_attempts_total
            scheduler_scheduling_attempt_duration_seconds
        """,
    },
    "BETA": {
        APISERVER: """
            apiserver_authentication_config_controller_automatic_reload_last_timestamp_seconds
            apiserver_authentication_config_controller_automatic_reloads_total
            +apiserver_authorization_config_controller_automatic_reload_last_timestamp_seconds
            +apiserver_authorization_config_controller_automatic_reloads_total
            apiserver_cel_compilation_duration_seconds
            apiserver_cel_evaluation_duration_seconds
            +apiserver_flowcontrol_current_executing_requests
            +apiserver_flowcontrol_current_executing_seats
            +apiserver_flowcontrol_current_inqueue_requests
            +apiserver_flowcontrol_dispatched_requests_total
            +apiserver_flowcontrol_nominal_limit_seats
            +apiserver_flowcontrol_rejected_requests_total
            +apiserver_flowcontrol_request_wait_duration_seconds
            apiserver_validating_admission_policy_check_duration_seconds
            apiserver_validating_admission_policy_check_total
            apiserver_validation_declarative_validation_mismatch_total
            apiserver_validation_declarative_validation_panic_total
        """,
        EVERY: """
            +disabled_metrics_total
            +hidden_metrics_total
            +orch_feature_enabled
            +registered_metrics_total
        """,
        AGENT: """
            +nodeagent_image_volume_mounted_errors_total
            +nodeagent_image_volume_mounted_succeed_total
            +nodeagent_image_volume_requested_total
            +prober_probe_total
        """,
        SCHEDULER: "scheduler_pod_scheduling_sli_duration_seconds",
    },
    "ALPHA": {
        APISERVER: """
            aggregator_* apiextensions_* +apiserver_* +apiserver_resource_objects +authentication_*
            +authorization_* +etcd_* +pod_security_* serviceaccount_* watch_cache_*
        """,
        CONTROLLER: "+leader_election_* +node_collector_* workqueue_*",
        AGENT: "csi_* dra_* +nodeagent_* +scrape_error volume_manager_*",
        EVERY: "+orch_build_info +version_info",
        CLIENTS: "+rest_client_*",
        WORKLOADS: """
            attachdetach_* endpoint_slice_* horizontal_pod_autoscaler_* job_controller_* node_ipam_*
            pod_gc_collector_* pv_collector_* service_controller_* statefulset_controller_*
        """,
        SCHEDULER: "scheduler_*",
        f"{OUTSIDE}network proxy": "proxy_*",
        f"{OUTSIDE}cloud provider": "cloud_provider_webhook_*",
        f"{OUTSIDE}volume controllers": "storage_*",
    },
}


# By the beginning of the names; the longest that fits counts.
_REASONS: Mapping[str, str] = {
    "aggregator_": "no other server is aggregated behind this one",
    "apiextensions_": "documents about defined kinds are made when they are asked for",
    "apiserver_authentication_config_": "set by flags: there is no file to reload",
    "apiserver_cel_": "there are no expressions to evaluate",
    "apiserver_validating_admission_policy_": "there are no admission policies",
    "apiserver_validation_declarative_": "there is one validation, with nothing to compare it to",
    "csi_": "CSI volumes are refused",
    "dra_": "resource claims are refused",
    "serviceaccount_": "there are no legacy tokens; see authentication_attempts",
    "volume_manager_": "volumes are made by each pod's worker; a failure is an event",
    "watch_cache_": "all reads are from memory: see apiserver_resource_objects",
    "workqueue_": "decisions are made in rounds, not from queues: see node_collector_*",
}


def entries() -> list[Entry]:
    """All names in the order stable, beta, alpha families; by name within each."""
    return [
        entry
        for tier, names in _PROMISED.items()
        for entry in sorted(_read(tier, names), key=lambda entry: entry.name)
    ]


def tier_of(name: str) -> Tier:
    """The tier of a name; names not in the catalogue are alpha."""
    return _TIERS.get(name, "ALPHA")


def _read(tier: Tier, names: Mapping[str, str]) -> Iterator[Entry]:
    for owner, text in names.items():
        for word in text.split():
            name, served = word.removeprefix("+"), word.startswith("+")
            own = not (served or owner.startswith(OUTSIDE))
            yield Entry(name, tier, owner, served, _reason(name) if own else "")


def _reason(name: str) -> str:
    fitting = (beginning for beginning in _REASONS if name.startswith(beginning))
    return _REASONS[max(fitting, key=len)]


_TIERS: dict[str, Tier] = {entry.name: entry.tier for entry in entries()}
