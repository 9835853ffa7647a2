"""The fields that records have but no program here acts on: kept, and passed on as they came.

They are what is missing in the records of `core`, `pods` and their like to the complete lists of
the reference system's OpenAPI document (release 1.35). Field validation and the OpenAPI documents
are made from both together. Lists must only grow: a missing name refuses valid objects.
"""

from __future__ import annotations

from collections.abc import Mapping

from orch.wire import coordination, core, meta, pods
from orch.wire.meta import WireModel

# Of these modules only records that are entered below are known as a whole.
_PARTLY_MODELLED = (core.__name__, pods.__name__)

_FIELDS: Mapping[type[WireModel], str] = {
    meta.ObjectMeta: "selfLink managedFields",
    core.NodeSpec: "configSource externalID preemptionPolicy",
    core.NodeSystemInfo: "swap",
    coordination.LeaseSpec: "strategy preferredHolder",
    pods.PodSpec: (
        "activeDeadlineSeconds affinity automountServiceAccountToken dnsConfig dnsPolicy"
        " enableServiceLinks hostAliases hostUsers hostnameOverride imagePullSecrets os overhead"
        " preemptionPolicy priorityClassName readinessGates resourceClaims resources"
        " runtimeClassName schedulerName schedulingGates schedulingGroup serviceAccount"
        " setHostnameAsFQDN shareProcessNamespace subdomain topologySpreadConstraints workloadRef"
    ),
    pods.Container: (
        "envFrom resizePolicy restartPolicyRules stdinOnce targetContainerName volumeDevices"
    ),
    pods.PodSecurityContext: (
        "appArmorProfile fsGroupChangePolicy seLinuxChangePolicy seLinuxOptions"
        " supplementalGroupsPolicy windowsOptions"
    ),
    pods.SecurityContext: "appArmorProfile procMount seLinuxOptions windowsOptions",
    pods.EnvVarSource: "configMapKeyRef fileKeyRef secretKeyRef",
    pods.ResourceRequirements: "claims",
    pods.VolumeMount: "recursiveReadOnly subPathExpr",
    pods.Volume: (
        "awsElasticBlockStore azureDisk azureFile cephfs cinder configMap csi ephemeral fc"
        " flexVolume flocker gcePersistentDisk gitRepo glusterfs image iscsi nfs"
        " persistentVolumeClaim photonPersistentDisk portworxVolume projected quobyte rbd scaleIO"
        " secret storageos vsphereVolume"
    ),
    pods.Probe: "grpc",
    pods.Lifecycle: "stopSignal",
    **dict.fromkeys(
        (
            core.ObjectReference, core.Taint, core.NodeAddress, core.DaemonEndpoint,
            core.Node, core.Namespace, core.NamespaceSpec, core.Event, core.EventSource,
            core.EventSeries, pods.Pod,
            pods.SeccompProfile, pods.Capabilities, pods.Sysctl, pods.FieldRef,
            pods.ResourceFieldRef, pods.EnvVar, pods.ContainerPort, pods.HostPathVolume,
            pods.EmptyDirVolume, pods.DownwardAPIItem, pods.DownwardAPIVolume, pods.ExecAction,
            pods.HTTPHeader, pods.HTTPGetAction, pods.TCPSocketAction, pods.SleepAction,
            pods.LifecycleHandler, pods.Toleration,
        ),
        "",
    ),
}  # fmt: skip


def fields_beyond(model: type[WireModel]) -> tuple[str, ...] | None:
    """The fields of a record beside those of its class; None when they are not all known."""
    if model in _FIELDS:
        return tuple(_FIELDS[model].split())
    return None if model.__module__ in _PARTLY_MODELLED else ()
