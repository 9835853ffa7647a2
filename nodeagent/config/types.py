"""The configuration record `NodeAgentConfiguration` (nodeagent.config.orch.io/v1beta1).

Field names and defaults are those of the reference agent; only fields that the agent acts on exist.
The record is strict: an unknown field or a wrong type is an error at that field. Must not know
where values come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, model_validator

from nodeagent.config.fields import (
    AbsolutePath,
    Address,
    CfsPeriod,
    CgroupPart,
    ConfigModel,
    Domain,
    Duration,
    HeaderName,
    IpAddress,
    LabelKey,
    LabelValue,
    OptionalPath,
    OptionalPort,
    Port,
    Quantity,
    ServerUrl,
    Socket,
    SysctlPattern,
    Threshold,
)
from orch.component.flags import reference_gates
from orch.component.secret import Secret
from orch.wire.names import AGENT_CONFIG_API_VERSION, AGENT_CONFIG_KIND


class X509Authentication(ConfigModel):
    clientCAFile: str = ""


class WebhookAuthentication(ConfigModel):
    """Bearer tokens, reviewed by the API server; all answers are cached for `cacheTTL`."""

    enabled: bool = True
    cacheTTL: Duration = 120.0


class AnonymousAuthentication(ConfigModel):
    enabled: bool = False


class Authentication(ConfigModel):
    x509: X509Authentication = X509Authentication()
    webhook: WebhookAuthentication = WebhookAuthentication()
    anonymous: AnonymousAuthentication = AnonymousAuthentication()


class WebhookAuthorization(ConfigModel):
    """How long the API server's answers are cached; 0s disables the cache."""

    cacheAuthorizedTTL: Duration = 300.0
    cacheUnauthorizedTTL: Duration = 30.0


class Authorization(ConfigModel):
    """`Webhook` queries the API server; without one, client certificate groups decide."""

    mode: Literal["AlwaysAllow", "Webhook"] = "Webhook"
    webhook: WebhookAuthorization = WebhookAuthorization()


Reserved = dict[Literal["cpu", "memory", "ephemeral-storage", "pid"], Quantity]
EvictionSignal = Literal[
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
]
DEFAULT_EVICTION_HARD: dict[EvictionSignal, str] = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
}


EnforcedPart = Literal[
    "pods",
    "none",
    "system-reserved",
    "system-reserved-compressible",
    "kube-reserved",
    "kube-reserved-compressible",
]
# The part of enforceNodeAllocatable → the fields that say what is reserved, and its cgroup.
RESERVED_PARTS: Mapping[EnforcedPart, tuple[str, str]] = {
    "system-reserved": ("systemReserved", "systemReservedCgroup"),
    "kube-reserved": ("nodeagentReserved", "nodeagentReservedCgroup"),
}


class Taint(ConfigModel):
    key: LabelKey
    value: LabelValue = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class ShutdownGroup(ConfigModel):
    """The grace period of pods with this priority or above when the machine shuts down."""

    priority: int
    shutdownGracePeriodSeconds: int = Field(ge=0)


class NodeProvider(ConfigModel):
    """Location and type of the machine, in the provider's terms; "" when not known."""

    zone: LabelValue = ""
    region: LabelValue = ""
    instanceType: LabelValue = ""


class Logging(ConfigModel):
    format: Literal["text", "json"] = "text"
    level: Literal["debug", "info", "warning", "error"] = "info"


class CheckpointEncryption(ConfigModel):
    """Age recipients of every archive; without any, archives are not encrypted."""

    recipients: list[str] = Field(default=[])
    recipientsFile: str = ""

    @model_validator(mode="after")
    def _recipients_look_like_keys(self) -> CheckpointEncryption:
        for text in self.recipients:
            if not text.startswith(("age1", "ssh-")):
                raise ValueError(
                    f"recipient {text[:15]!r} is not an age public key; it begins with age1 or ssh-"
                )
        return self


class CheckpointPolicy(ConfigModel):
    """Limits on concurrent checkpoints and on the store; 0 means unlimited."""

    maxConcurrent: int = Field(default=2, ge=1, le=64)
    maxPerContainer: int = Field(default=10, ge=0)
    maxPerPod: int = Field(default=20, ge=0)
    maxPerNamespace: int = Field(default=100, ge=0)
    maxTotal: Threshold = "20%"  # of the file system of the root directory
    minFree: Threshold = "12%"  # above nodefs.available: archives go before pods
    maxAge: Duration = 7 * 24 * 3600.0
    deletedPods: Literal["Keep", "Expire", "Delete"] = "Expire"
    deletedPodsMaxAge: Duration = 24 * 3600.0
    encryption: CheckpointEncryption = CheckpointEncryption()


class PsiTrigger(ConfigModel):
    """Report when tasks are stalled for longer than `threshold` within `window`."""

    resource: Literal["cpu", "memory", "io"]
    level: Literal["some", "full"] = "some"
    scope: Literal["node", "pod", "container"] = "node"
    threshold: Duration
    window: Duration = 2.0

    @model_validator(mode="after")
    def _validate_bounds(self) -> PsiTrigger:
        if not 0.5 <= self.window <= 10:
            raise ValueError("window must be between 500ms and 10s")
        if not 1e-6 <= self.threshold <= self.window:  # the kernel counts in microseconds
            raise ValueError("threshold must be at least 1us and not above the window")
        return self


class MemorySwap(ConfigModel):
    """What containers may swap, on a host with cgroup v2; "" is NoSwap."""

    swapBehavior: Literal["", "NoSwap", "LimitedSwap"] = ""


class NodeAgentConfiguration(ConfigModel):
    """The effective configuration."""

    apiVersion: Literal["nodeagent.config.orch.io/v1beta1"] = AGENT_CONFIG_API_VERSION
    kind: Literal["NodeAgentConfiguration"] = AGENT_CONFIG_KIND

    # pods
    staticPodPath: str = ""
    fileCheckFrequency: Duration = 20.0
    staticPodURL: Address = ""
    staticPodURLHeader: dict[HeaderName, list[Secret]] = Field(default={})
    httpCheckFrequency: Duration = 20.0
    podLogsDir: AbsolutePath = "/var/log/pods"
    containerLogMaxSize: Quantity = "10Mi"
    containerLogMaxFiles: int = Field(default=5, ge=2)
    containerLogMonitorInterval: Duration = 10.0
    imageMinimumGCAge: Duration = 120.0
    imageMaximumGCAge: Duration = 0.0  # 0: unlimited
    imageGCHighThresholdPercent: int = Field(default=85, ge=0, le=100)
    imageGCLowThresholdPercent: int = Field(default=80, ge=0, le=100)
    maxPods: int = Field(default=110, ge=1)
    podsPerCore: int = Field(default=0, ge=0)
    podPidsLimit: int = Field(default=-1, ge=-1)  # -1 and 0: unlimited
    clusterDNS: list[IpAddress] = Field(default=[], max_length=16)
    clusterDomain: Domain = ""
    resolvConf: OptionalPath = "/etc/resolv.conf"
    podAPIServer: ServerUrl = ""  # as pods reach it; "": as the agent does
    probeHostPolicy: Literal["any", "pod"] = "any"
    cpuCFSQuota: bool = True
    cpuCFSQuotaPeriod: CfsPeriod = 0.1
    memorySwap: MemorySwap = MemorySwap()
    memoryThrottlingFactor: float = Field(default=0.9, gt=0, le=1, strict=False)
    memoryReservationPolicy: Literal["None", "TieredReservation"] = "None"
    singleProcessOOMKill: bool | None = None  # None: as the host's cgroup version has it
    seccompDefault: bool = False
    allowedUnsafeSysctls: list[SysctlPattern] = Field(default=[], max_length=256)
    devicePlugins: bool = True
    cgroupRoot: AbsolutePath = "/"

    # serving
    address: IpAddress = "0.0.0.0"  # noqa: S104 — the agent serves the network; access is authenticated
    port: Port = 10250
    tlsCertFile: str = ""
    tlsPrivateKeyFile: str = ""
    rotateCertificates: bool = False
    serverTLSBootstrap: bool = False  # without tlsCertFile
    healthzBindAddress: IpAddress = "127.0.0.1"
    healthzPort: OptionalPort = 10248
    tlsMinVersion: Literal["", "VersionTLS12", "VersionTLS13"] = ""
    tlsCipherSuites: list[str] = Field(default=[])
    readOnlyPort: OptionalPort = 0
    overviewPage: bool = False
    authentication: Authentication = Authentication()
    authorization: Authorization = Authorization()

    # runtime
    containerRuntimeEndpoint: Socket = "unix:///run/containerd/containerd.sock"
    runtimeRequestTimeout: Duration = 120.0
    enableDebuggingHandlers: bool = True
    streamingConnectionIdleTimeout: Duration = 4 * 3600.0  # 0: a stream may be silent for ever
    serializeImagePulls: bool = True
    maxParallelImagePulls: int | None = Field(default=None, ge=1)  # None: any number
    registryPullQPS: int = Field(default=5, ge=0)  # 0: any number
    registryBurst: int = Field(default=10, ge=0)

    # measuring
    housekeepingInterval: Duration = 10.0
    openFileBudget: int = Field(default=8192, ge=0)
    psiTriggers: list[PsiTrigger] = Field(default=[], max_length=16)
    systemCgroups: CgroupPart = ""

    # node and heartbeat
    registerNode: bool = True
    providerID: str = ""
    registerWithTaints: list[Taint] = Field(default=[])
    nodeProvider: NodeProvider = NodeProvider()
    nodeProviderFile: str = ""  # YAML of the same fields, used where nodeProvider is empty
    nodeStatusUpdateFrequency: Duration = 10.0
    nodeStatusReportFrequency: Duration = 300.0
    nodeLeaseDurationSeconds: int = Field(default=40, ge=1)
    watchSilence: Duration = 120.0  # the API server sends a bookmark each minute
    nodeStatusMaxImages: int = Field(default=50, ge=-1)
    systemReserved: Reserved = Field(default={})
    nodeagentReserved: Reserved = Field(default={})
    systemReservedCgroup: CgroupPart = ""
    nodeagentReservedCgroup: CgroupPart = ""
    enforceNodeAllocatable: list[EnforcedPart] = Field(default=["pods"], max_length=16)
    evictionHard: dict[EvictionSignal, Threshold] = DEFAULT_EVICTION_HARD
    mergeDefaultEvictionSettings: bool = False  # into evictionHard
    evictionSoft: dict[EvictionSignal, Threshold] = Field(default={})
    evictionSoftGracePeriod: dict[EvictionSignal, Duration] = Field(default={})
    evictionMaxPodGracePeriod: int = Field(default=0, ge=0)  # of soft evictions; 0: the pod's own
    evictionMinimumReclaim: dict[EvictionSignal, Threshold] = Field(default={})
    evictionPressureTransitionPeriod: Duration = 300.0

    # conditions from stalls, percent of time
    systemMemoryContentionThreshold: float = Field(default=10.0, gt=0, le=100)
    systemDiskContentionThreshold: float = Field(default=30.0, gt=0, le=100)
    kubepodsMemoryContentionThreshold: float = Field(default=10.0, gt=0, le=100)
    kubepodsDiskContentionThreshold: float = Field(default=30.0, gt=0, le=100)

    # shutdown of the machine
    shutdownGracePeriod: Duration = 0.0  # 0: no ordered shutdown of pods
    shutdownGracePeriodCriticalPods: Duration = 0.0
    shutdownGracePeriodByPodPriority: list[ShutdownGroup] = Field(default=[])

    # features
    featureGates: dict[str, bool] = Field(default={})
    checkpoint: CheckpointPolicy = CheckpointPolicy()
    failCgroupV1: bool = False
    failSwapOn: bool = False
    logging: Logging = Logging()

    @model_validator(mode="after")
    def _ports_differ(self) -> NodeAgentConfiguration:
        if self.readOnlyPort and self.readOnlyPort in (self.port, self.healthzPort):
            raise ValueError(f"readOnlyPort {self.readOnlyPort} is used by another port")
        if self.healthzPort == self.port:
            raise ValueError(f"healthzPort {self.healthzPort} is the same as port")
        return self

    @model_validator(mode="after")
    def _fields_fit_each_other(self) -> NodeAgentConfiguration:
        if bool(self.tlsCertFile) != bool(self.tlsPrivateKeyFile):
            raise ValueError("tlsCertFile and tlsPrivateKeyFile must be given together")
        for name in _POSITIVE_DURATIONS:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be greater than 0s")
        for signal in self.evictionSoft:
            if signal not in self.evictionSoftGracePeriod:
                raise ValueError(f"evictionSoft {signal!r} needs an evictionSoftGracePeriod")
        if self.imageGCLowThresholdPercent >= self.imageGCHighThresholdPercent:
            raise ValueError(
                "imageGCLowThresholdPercent must be less than imageGCHighThresholdPercent"
            )
        if 0 < self.imageMaximumGCAge <= self.imageMinimumGCAge:
            raise ValueError("imageMaximumGCAge must be greater than imageMinimumGCAge")
        if self.containerLogMonitorInterval < 3:
            raise ValueError("containerLogMonitorInterval must be at least 3s")
        return self

    @model_validator(mode="after")
    def _gate_and_bootstrap_fit_each_other(self) -> NodeAgentConfiguration:
        if self.serverTLSBootstrap and not self.featureGates.get(reference_gates.ROTATION, True):
            raise ValueError(f"serverTLSBootstrap needs the gate {reference_gates.ROTATION}")
        return self

    @model_validator(mode="after")
    def _pulls_fit_each_other(self) -> NodeAgentConfiguration:
        if self.serializeImagePulls and (self.maxParallelImagePulls or 1) > 1:
            raise ValueError("maxParallelImagePulls above 1 needs serializeImagePulls: false")
        return self

    @model_validator(mode="after")
    def _enforced_parts_fit_each_other(self) -> NodeAgentConfiguration:
        parts = self.enforceNodeAllocatable
        if len(parts) > 1 and (len(set(parts)) < len(parts) or "none" in parts):
            raise ValueError("enforceNodeAllocatable has a part twice, or none beside another")
        for part, fields in RESERVED_PARTS.items():
            if part not in parts and f"{part}-compressible" not in parts:
                continue
            if part in parts and f"{part}-compressible" in parts:
                raise ValueError(f"enforceNodeAllocatable has both {part} and its compressible")
            for field in fields:
                if not getattr(self, field):
                    raise ValueError(f"enforceNodeAllocatable with {part} needs {field}")
        return self

    @model_validator(mode="after")
    def _taints_differ(self) -> NodeAgentConfiguration:
        taints = [(taint.key, taint.effect) for taint in self.registerWithTaints]
        for key, effect in taints:
            if taints.count((key, effect)) > 1:
                raise ValueError(f"registerWithTaints has {key}:{effect} more than once")
        return self


_POSITIVE_DURATIONS = (
    "fileCheckFrequency",
    "httpCheckFrequency",
    "runtimeRequestTimeout",
    "housekeepingInterval",
    "nodeStatusUpdateFrequency",
    "nodeStatusReportFrequency",
    "watchSilence",
)
