"""The Pod record: desired state (`spec`) and observed state (`status`).

Only fields that the agent acts on are declared; the others are kept unchanged (see `meta`).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from orch.wire.records.handlers import Lifecycle, Probe
from orch.wire.records.meta import ApiObject, LocalObjectReference, WireModel
from orch.wire.times import Time

_MANY = 1000  # a node runs fewer; each takes long to check


class SeccompProfile(WireModel):
    type: str
    localhostProfile: str | None = None


class AppArmorProfile(WireModel):
    type: str = ""
    localhostProfile: str | None = None  # the name of a profile that the host has loaded


class Capabilities(WireModel):
    add: list[str] | None = None
    drop: list[str] | None = None


class Sysctl(WireModel):
    name: str
    value: str


class PodSecurityContext(WireModel):
    runAsUser: int | None = None
    runAsGroup: int | None = None
    runAsNonRoot: bool | None = None
    fsGroup: int | None = None
    supplementalGroups: list[int] | None = None
    supplementalGroupsPolicy: str | None = None  # Merge | Strict
    seccompProfile: SeccompProfile | None = None
    appArmorProfile: AppArmorProfile | None = None
    sysctls: list[Sysctl] | None = None


class SecurityContext(WireModel):
    runAsUser: int | None = None
    runAsGroup: int | None = None
    runAsNonRoot: bool | None = None
    privileged: bool | None = None
    allowPrivilegeEscalation: bool | None = None
    readOnlyRootFilesystem: bool | None = None
    capabilities: Capabilities | None = None
    seccompProfile: SeccompProfile | None = None
    appArmorProfile: AppArmorProfile | None = None


class FieldRef(WireModel):
    apiVersion: str | None = None
    fieldPath: str


class ResourceFieldRef(WireModel):
    containerName: str | None = None  # of a volume's item; in a variable: its own container
    resource: str  # limits.cpu, requests.memory, …
    divisor: str | int | None = None


class KeySelector(WireModel):
    name: str = ""  # of a ConfigMap or Secret in the pod's namespace
    key: str
    optional: bool | None = None


class EnvVarSource(WireModel):
    fieldRef: FieldRef | None = None
    resourceFieldRef: ResourceFieldRef | None = None
    configMapKeyRef: KeySelector | None = None
    secretKeyRef: KeySelector | None = None


class EnvObjectRef(WireModel):
    name: str = ""
    optional: bool | None = None


class EnvFromSource(WireModel):
    """Every value of an object becomes a variable, its name after the prefix."""

    prefix: str | None = None
    configMapRef: EnvObjectRef | None = None
    secretRef: EnvObjectRef | None = None


class EnvVar(WireModel):
    name: str
    value: str | None = None
    valueFrom: EnvVarSource | None = None


class ContainerPort(WireModel):
    name: str | None = None
    containerPort: int
    hostPort: int | None = None
    hostIP: str | None = None
    protocol: str | None = None


class ResourceRequirements(WireModel):
    limits: dict[str, Any] | None = None  # quantity text, or a number as YAML gives it
    requests: dict[str, Any] | None = None


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
    medium: str | None = None  # "" (disk) or Memory
    sizeLimit: str | int | None = None


class DownwardAPIItem(WireModel):
    path: str
    fieldRef: FieldRef | None = None
    resourceFieldRef: ResourceFieldRef | None = None
    mode: int | None = None


class DownwardAPIVolume(WireModel):
    items: list[DownwardAPIItem] | None = None
    defaultMode: int | None = None


class KeyToPath(WireModel):
    key: str
    path: str
    mode: int | None = None


class ConfigMapVolume(WireModel):
    name: str = ""
    items: list[KeyToPath] | None = None
    defaultMode: int | None = None
    optional: bool | None = None


class SecretVolume(WireModel):
    secretName: str = ""
    items: list[KeyToPath] | None = None
    defaultMode: int | None = None
    optional: bool | None = None


class SecretProjection(WireModel):
    name: str = ""
    items: list[KeyToPath] | None = None
    optional: bool | None = None


class ProjectedSource(WireModel):
    """One of the sources is set."""

    configMap: ConfigMapVolume | None = None
    secret: SecretProjection | None = None
    downwardAPI: DownwardAPIVolume | None = None


class ProjectedVolume(WireModel):
    sources: list[ProjectedSource] | None = None
    defaultMode: int | None = None


class ImageVolume(WireModel):
    """What is in an image, read-only."""

    reference: str = ""
    pullPolicy: str | None = None


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
    volumeMounts: list[VolumeMount] | None = None
    securityContext: SecurityContext | None = None
    stdin: bool | None = None
    tty: bool | None = None
    terminationMessagePath: str | None = None
    terminationMessagePolicy: str | None = None  # File | FallbackToLogsOnError
    lifecycle: Lifecycle | None = None
    livenessProbe: Probe | None = None
    readinessProbe: Probe | None = None
    startupProbe: Probe | None = None
    targetContainerName: str | None = None  # only ephemeral ones have it
    restartPolicy: str | None = None  # "Always" makes an init container a sidecar


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
    restartPolicy: Literal["Always", "OnFailure", "Never"] | None = None
    terminationGracePeriodSeconds: int | None = None
    activeDeadlineSeconds: int | None = None
    readinessGates: list[PodReadinessGate] | None = None
    hostNetwork: bool | None = None
    hostPID: bool | None = None
    hostIPC: bool | None = None
    shareProcessNamespace: bool | None = None
    runtimeClassName: str | None = None
    hostname: str | None = None
    subdomain: str | None = None
    setHostnameAsFQDN: bool | None = None
    dnsPolicy: str | None = None  # ClusterFirst | ClusterFirstWithHostNet | Default | None
    dnsConfig: PodDNSConfig | None = None
    hostAliases: list[HostAlias] | None = Field(None, max_length=_MANY)
    securityContext: PodSecurityContext | None = None
    tolerations: list[Toleration] | None = None
    serviceAccountName: str | None = None
    imagePullSecrets: list[LocalObjectReference] | None = None
    priority: int | None = None


class ContainerStateRunning(WireModel):
    startedAt: Time | None = None


class ContainerStateTerminated(WireModel):
    exitCode: int
    signal: int | None = None
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


class ContainerStatus(WireModel):
    name: str
    state: ContainerState | None = None
    lastState: ContainerState | None = None
    ready: bool = False
    restartCount: int = 0
    image: str = ""
    imageID: str = ""
    containerID: str | None = None
    started: bool | None = None


class PodCondition(WireModel):
    type: str
    status: str
    reason: str | None = None
    message: str | None = None
    lastProbeTime: Time | None = None
    lastTransitionTime: Time | None = None


class PodIP(WireModel):
    ip: str


class PodStatus(WireModel):
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


class Pod(ApiObject):
    apiVersion: str = "v1"
    kind: str = "Pod"
    spec: PodSpec = Field(default_factory=PodSpec)
    status: PodStatus = Field(default_factory=PodStatus)
