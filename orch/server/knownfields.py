"""The complete field lists of the upper levels of each kind, for strict field validation; data.

From the reference system's OpenAPI document, plus the fields of this service's own records. A
level that is None is not looked into. Lists must only grow: a missing name refuses valid objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Known = Mapping[str, Any]  # field name → Known of the level below, or None


def _level(names: str, **below: Known) -> Known:
    return {**dict.fromkeys(names.split()), **below}


_OWNER = _level("apiVersion kind name uid controller blockOwnerDeletion")
METADATA = _level(
    "name generateName namespace selfLink uid resourceVersion generation creationTimestamp"
    " deletionTimestamp deletionGracePeriodSeconds labels annotations finalizers managedFields",
    ownerReferences=_OWNER,
)


def _kind(names: str = "", **below: Known) -> Known:
    return _level(f"kind apiVersion {names}", metadata=METADATA, **below)


_CONTAINER = _level(
    "name image command args workingDir ports envFrom env resources resizePolicy restartPolicy"
    " restartPolicyRules volumeMounts volumeDevices livenessProbe readinessProbe startupProbe"
    " lifecycle terminationMessagePath terminationMessagePolicy imagePullPolicy securityContext"
    " stdin stdinOnce tty"
)
_EPHEMERAL_CONTAINER = {**_CONTAINER, "targetContainerName": None}
_TOLERATION = _level("key operator value effect tolerationSeconds")
_POD_SPEC = _level(
    "volumes restartPolicy terminationGracePeriodSeconds activeDeadlineSeconds dnsPolicy"
    " nodeSelector serviceAccountName serviceAccount automountServiceAccountToken nodeName"
    " hostNetwork hostPID hostIPC shareProcessNamespace securityContext imagePullSecrets hostname"
    " subdomain affinity schedulerName hostAliases priorityClassName priority dnsConfig"
    " readinessGates runtimeClassName enableServiceLinks preemptionPolicy overhead"
    " topologySpreadConstraints setHostnameAsFQDN os hostUsers schedulingGates resourceClaims"
    " resources hostnameOverride workloadRef schedulingGroup",
    containers=_CONTAINER,
    initContainers=_CONTAINER,
    ephemeralContainers=_EPHEMERAL_CONTAINER,
    tolerations=_TOLERATION,
)
_NODE_SPEC = _level(
    "podCIDR podCIDRs providerID unschedulable configSource externalID preemptionPolicy",
    taints=_level("key value effect timeAdded"),
)
_LEASE_SPEC = _level(
    "holderIdentity leaseDurationSeconds acquireTime renewTime leaseTransitions strategy"
    " preferredHolder"
)
_REFERENCE = _level("kind namespace name uid apiVersion resourceVersion fieldPath")

_SELECTOR = _level("rawSelector", requirements=_level("key operator values"))
_ACCESS = _level(
    "",
    resourceAuthorizationAttributes=_level(
        "namespace verb group version resource subresource name",
        fieldSelector=_SELECTOR,
        labelSelector=_SELECTOR,
    ),
    nonResourceAuthorizationAttributes=_level("path verb"),
)
_SUBJECT_ACCESS = {**_ACCESS, **_level("user groups uid extra")}

_RULES = _level("verbs apiGroups resources resourceNames nonResourceURLs")
_BINDING = _kind(
    subjects=_level("kind apiGroup name namespace"), roleRef=_level("apiGroup kind name")
)
_LABEL_SELECTOR = {
    "matchLabels": None,
    "matchExpressions": _level("key operator values"),
}

KINDS: Mapping[str, Known] = {
    "Role": _kind(rules=_RULES),
    "ClusterRole": _kind(
        rules=_RULES, aggregationRule=_level("", clusterRoleSelectors=_LABEL_SELECTOR)
    ),
    "RoleBinding": _BINDING,
    "ClusterRoleBinding": _BINDING,
    "SubjectAccessReview": _kind("status", spec=_SUBJECT_ACCESS),
    "LocalSubjectAccessReview": _kind("status", spec=_SUBJECT_ACCESS),
    "SelfSubjectAccessReview": _kind("status", spec=_ACCESS),
    "SelfSubjectRulesReview": _kind("status", spec=_level("namespace")),
    "TokenReview": _kind("status", spec=_level("token audiences")),
    "SelfSubjectReview": _kind("status"),
    "Namespace": _kind("status", spec=_level("finalizers")),
    "Node": _kind("status", spec=_NODE_SPEC),
    "Pod": _kind("status", spec=_POD_SPEC),
    "Lease": _kind(spec=_LEASE_SPEC),
    "ConfigMap": _kind("data binaryData immutable"),
    "Secret": _kind("data stringData immutable type"),
    "ServiceAccount": _kind(
        "automountServiceAccountToken", secrets=_REFERENCE, imagePullSecrets=_level("name")
    ),
    "Event": _kind(
        "reason message firstTimestamp lastTimestamp count type eventTime action"
        " reportingComponent reportingInstance",
        involvedObject=_REFERENCE,
        related=_REFERENCE,
        source=_level("component host"),
        series=_level("count lastObservedTime"),
    ),
}
