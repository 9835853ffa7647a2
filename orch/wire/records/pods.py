"""The Pod record: desired state (`spec`) and observed state (`status`).

Only fields that the agent acts on are declared; the others are kept unchanged (see `meta`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from orch.wire.records.handlers import Lifecycle, Probe
from orch.wire.records.isolation import PodSecurityContext, SecurityContext
from orch.wire.records.meta import ApiObject, Int32, LocalObjectReference, Time, WireModel
from orch.wire.records.placement import Affinity
from orch.wire.records.variables import EnvFromSource, EnvVar, FieldRef, ResourceFieldRef

_MANY = 1000  # a node runs fewer; each takes long to check
_EMPTY_IS_UNSET = BeforeValidator(lambda value: None if value == "" else value)


class ContainerPort(WireModel):
    name: str | None = None
    containerPort: Int32
    hostPort: Int32 | None = None
    hostIP: str | None = None
    protocol: str | None = None


class ResourceRequirements(WireModel):
    limits: dict[str, Any] | None = None  # quantity text, or a number as YAML gives it
    requests: dict[str, Any] | None = None


class ContainerResizePolicy(WireModel):
    """Whether a change of the resource restarts the container; without one it does not."""

    resourceName: str = ""  # cpu | memory
    restartPolicy: str = ""  # NotRequired | RestartContainer


class VolumeMount(WireModel):
    name: str
    mountPath: str
    readOnly: bool | None = None
    subPath: str | None = None
    subPathExpr: str | None = None  # with $(VAR) references
    recursiveReadOnly: str | None = None  # Disabled | IfPossible | Enabled
    mountPropagation: str | None = None


class HostPathVolume(WireModel):
    path: str
    type: str | None = None


class EmptyDirVolume(WireModel):
    medium: str | None = None  # "" (disk), Memory, HugePages or HugePages-<size>
    sizeLimit: str | int | None = None


class DownwardAPIItem(WireModel):
    path: str
    fieldRef: FieldRef | None = None
    resourceFieldRef: ResourceFieldRef | None = None
    mode: Int32 | None = None


class DownwardAPIVolume(WireModel):
    items: list[DownwardAPIItem] | None = None
    defaultMode: Int32 | None = None


class KeyToPath(WireModel):
    key: str
    path: str
    mode: Int32 | None = None


class ConfigMapVolume(WireModel):
    name: str = ""
    items: list[KeyToPath] | None = None
    defaultMode: Int32 | None = None
    optional: bool | None = None


class SecretVolume(WireModel):
    secretName: str = ""
    items: list[KeyToPath] | None = None
    defaultMode: Int32 | None = None
    optional: bool | None = None


class SecretProjection(WireModel):
    name: str = ""
    items: list[KeyToPath] | None = None
    optional: bool | None = None


class ServiceAccountTokenProjection(WireModel):
    """A token of the pod's service account, in one file."""

    path: str = ""
    audience: str | None = None  # the API server's own unless given
    expirationSeconds: int | None = None


class ProjectedSource(WireModel):
    """One of the sources is set."""

    configMap: ConfigMapVolume | None = None
    secret: SecretProjection | None = None
    downwardAPI: DownwardAPIVolume | None = None
    serviceAccountToken: ServiceAccountTokenProjection | None = None


class ProjectedVolume(WireModel):
    sources: list[ProjectedSource] | None = None
    defaultMode: Int32 | None = None


class ImageVolume(WireModel):
    """What is in an image, read-only."""

    reference: str = ""
    pullPolicy: str | None = None


class NFSVolume(WireModel):
    """A directory that a server exports."""

    server: str = ""
    path: str = ""
    readOnly: bool | None = None


class Volume(WireModel):
    """One of the sources is set; a source this agent does not know stays in the extras."""

    name: str
    hostPath: HostPathVolume | None = None
    emptyDir: EmptyDirVolume | None = None
    downwardAPI: DownwardAPIVolume | None = None
    configMap: ConfigMapVolume | None = None
    secret: SecretVolume | None = None
    projected: ProjectedVolume | None = None
    image: ImageVolume | None = None
    nfs: NFSVolume | None = None


class ExitCodes(WireModel):
    operator: str = ""  # In | NotIn
    values: list[Int32] | None = None


class ContainerRestartRule(WireModel):
    """Of several, the first whose exit codes fit counts, before the container's policy."""

    action: str = ""  # Restart | RestartAllContainers
    exitCodes: ExitCodes | None = None


class Container(WireModel):
    name: str
    image: str = ""
    imagePullPolicy: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    workingDir: str | None = None
    envFrom: list[EnvFromSource] | None = None
    env: list[EnvVar] | None = None
    ports: list[ContainerPort] | None = None
    resources: ResourceRequirements | None = None
    resizePolicy: list[ContainerResizePolicy] | None = None
    volumeMounts: list[VolumeMount] | None = None
    securityContext: SecurityContext | None = None
    stdin: bool | None = None
    stdinOnce: bool | None = None
    tty: bool | None = None
    terminationMessagePath: str | None = None
    terminationMessagePolicy: str | None = None  # File | FallbackToLogsOnError
    lifecycle: Lifecycle | None = None
    livenessProbe: Probe | None = None
    readinessProbe: Probe | None = None
    startupProbe: Probe | None = None
    targetContainerName: str | None = None  # only ephemeral ones have it
    restartPolicy: str | None = None  # "Always" makes an init container a sidecar
    restartPolicyRules: list[ContainerRestartRule] | None = None


class Toleration(WireModel):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    tolerationSeconds: int | None = None


class HostAlias(WireModel):
    ip: str
    hostnames: list[str] | None = None


class PodDNSConfigOption(WireModel):
    name: str = ""
    value: str | None = None


class PodDNSConfig(WireModel):
    """Added to what the policy gives."""

    nameservers: list[str] | None = None
    searches: list[str] | None = None
    options: list[PodDNSConfigOption] | None = None


class PodReadinessGate(WireModel):
    """The pod is ready only while this condition, which somebody else sets, is True."""

    conditionType: str = ""


class PodSpec(WireModel):
    containers: list[Container] = Field(default_factory=list, max_length=_MANY)
    initContainers: list[Container] | None = Field(None, max_length=_MANY)
    ephemeralContainers: list[Container] | None = Field(None, max_length=_MANY)
    volumes: list[Volume] | None = Field(None, max_length=_MANY)
    nodeName: str | None = None
    nodeSelector: dict[str, str] | None = None
    affinity: Affinity | None = None
    restartPolicy: Annotated[Literal["Always", "OnFailure", "Never"] | None, _EMPTY_IS_UNSET] = None
    terminationGracePeriodSeconds: int | None = None
    activeDeadlineSeconds: int | None = None
    readinessGates: list[PodReadinessGate] | None = None
    hostNetwork: bool | None = None
    hostPID: bool | None = None
    hostIPC: bool | None = None
    hostUsers: bool | None = None  # False: a user namespace of its own
    shareProcessNamespace: bool | None = None
    runtimeClassName: str | None = None
    hostname: str | None = None
    hostnameOverride: str | None = None  # in place of the pod's and the subdomain's
    subdomain: str | None = None
    setHostnameAsFQDN: bool | None = None
    dnsPolicy: str | None = None  # ClusterFirst | ClusterFirstWithHostNet | Default | None
    dnsConfig: PodDNSConfig | None = None
    hostAliases: list[HostAlias] | None = Field(None, max_length=_MANY)
    securityContext: PodSecurityContext | None = None
    tolerations: list[Toleration] | None = None
    serviceAccountName: str | None = None
    imagePullSecrets: list[LocalObjectReference] | None = None
    priority: Int32 | None = None
    resources: ResourceRequirements | None = None  # of the pod as a whole
    overhead: dict[str, Any] | None = None  # of its runtime class, beside what containers request


class ContainerStateRunning(WireModel):
    startedAt: Time | None = None


class ContainerStateTerminated(WireModel):
    exitCode: Int32
    signal: Int32 | None = None
    reason: str | None = None
    message: str | None = None
    startedAt: Time | None = None
    finishedAt: Time | None = None
    containerID: str | None = None


class ContainerStateWaiting(WireModel):
    reason: str | None = None
    message: str | None = None


class ContainerState(WireModel):
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None
    waiting: ContainerStateWaiting | None = None


class ResourceHealth(WireModel):
    resourceID: str
    health: str | None = None  # Healthy | Unhealthy | Unknown


class ResourceStatus(WireModel):
    name: str
    resources: list[ResourceHealth] | None = None


class LinuxContainerUser(WireModel):
    uid: int
    gid: int
    supplementalGroups: list[int] | None = None


class ContainerUser(WireModel):
    linux: LinuxContainerUser | None = None


class VolumeMountStatus(WireModel):
    name: str
    mountPath: str
    readOnly: bool | None = None
    recursiveReadOnly: str | None = None  # Disabled | Enabled, of a read-only mount


class ContainerStatus(WireModel):
    name: str
    state: ContainerState | None = None
    lastState: ContainerState | None = None
    ready: bool = False
    restartCount: Int32 = 0
    image: str = ""
    imageID: str = ""
    containerID: str | None = None
    started: bool | None = None
    allocatedResources: dict[str, Any] | None = None  # requests that the node has granted
    resources: ResourceRequirements | None = None  # what the running container has
    allocatedResourcesStatus: list[ResourceStatus] | None = None
    volumeMounts: list[VolumeMountStatus] | None = None
    user: ContainerUser | None = None  # whom its first process began as
    stopSignal: str | None = None


class PodCondition(WireModel):
    type: str
    status: str
    observedGeneration: int | None = None  # of the pod's metadata, when it was found to hold
    reason: str | None = None
    message: str | None = None
    lastProbeTime: Time | None = None
    lastTransitionTime: Time | None = None


class PodIP(WireModel):
    ip: str


class PodStatus(WireModel):
    observedGeneration: int | None = None
    phase: str | None = None  # Pending | Running | Succeeded | Failed | Unknown
    conditions: list[PodCondition] | None = None
    message: str | None = None
    reason: str | None = None
    hostIP: str | None = None
    hostIPs: list[PodIP] | None = None
    podIP: str | None = None
    podIPs: list[PodIP] | None = None
    startTime: Time | None = None
    initContainerStatuses: list[ContainerStatus] | None = None
    containerStatuses: list[ContainerStatus] | None = None
    ephemeralContainerStatuses: list[ContainerStatus] | None = None
    qosClass: str | None = None
    resources: ResourceRequirements | None = None  # as `allocatedResources`, of the whole pod
    allocatedResources: dict[str, Any] | None = None


class Pod(ApiObject):
    apiVersion: str = "v1"
    kind: str = "Pod"
    spec: PodSpec = Field(default_factory=PodSpec)
    status: PodStatus = Field(default_factory=PodStatus)
