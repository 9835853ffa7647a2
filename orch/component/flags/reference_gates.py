"""Feature gates of the reference system, release 1.36, that switch nothing here; pure.

A gate given as it is there by default says nothing new and is accepted; switched otherwise it is
refused, because what it asks for would not happen. The gates of this system are in `features`.
"""

from __future__ import annotations

from collections.abc import Mapping

# Names that the reference gives to gates of ours.
RENAMED: Mapping[str, str] = {
    "KubeletFineGrainedAuthz": "NodeAgentFineGrainedAuthz",
    "KubeletPSI": "NodeAgentPSI",
}

# Off, it says that `serverTLSBootstrap` is off, too: the agent holds its configuration against it.
ROTATION = "RotateKubeletServerCertificate"

# On there; but off here, and nobody should rely on it.
_NEVER = "KubeletEnsureSecretPulledImages"

# pkg/features/kube_features.go and those of apiserver and component-base: alphabetical.
_ON = """
    APIResponseCompression APIServerIdentity APIServerTracing AggregatedDiscoveryRemoveBetaType
    AllowParsingUserUIDFromCertAuth AllowServiceExternalIPs AnonymousAuthConfigurableEndpoints
    AnyVolumeDataSource AuthorizeNodeWithSelectors AuthorizePodWebsocketUpgradeCreatePermission
    AuthorizeWithSelectors BtreeWatchCache CPUManagerPolicyBetaOptions CPUManagerPolicyOptions
    CRDObservedGenerationTracking CRDValidationRatcheting CSIServiceAccountTokenSecrets
    ClearingNominatedNodeNameAfterBinding ConsistentListFromCache ConstrainedImpersonation
    ContainerRestartRules ContextualLogging CustomCPUCFSQuotaPeriod CustomResourceFieldSelectors
    DRAAdminAccess DRAConsumableCapacity DRADeviceBindingConditions DRADeviceTaints
    DRAExtendedResource DRAPartitionableDevices DRAPrioritizedList DRAResourceClaimDeviceStatus
    DRAResourceClaimGranularStatusAuthorization DRASchedulerFilterTimeout DeclarativeValidation
    DeclarativeValidationBeta DeploymentReplicaSetTerminatingReplicas DetectCacheInconsistency
    DisableAllocatorDualWrite DisableCPUQuotaWithExclusiveCPUs DisableNodeKubeProxyVersion
    DynamicResourceAllocation EnvFiles ExecProbeTimeout ExtendWebSocketsToKubelet
    ExternalServiceAccountTokenSigner GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority
    HPAConfigurableTolerance HostnameOverride ImageMaximumGCAge ImageVolume
    InPlacePodLevelResourcesVerticalScaling InPlacePodVerticalScalingInitContainers
    JobBackoffLimitPerIndex JobManagedBy JobPodReplacementPolicy JobSuccessPolicy
    KubeletCgroupDriverFromCRI KubeletCrashLoopBackOffMax KubeletPodResourcesDynamicResources
    KubeletPodResourcesGet KubeletPodResourcesListUseActivePods KubeletSeparateDiskGC
    KubeletServiceAccountTokenForCredentialProviders KubeletTracing ListFromCacheSnapshot
    LogarithmicScaleDown LoggingBetaOptions MatchLabelKeysInPodAffinity
    MatchLabelKeysInPodTopologySpread MatchLabelKeysInPodTopologySpreadSelectorMerge
    MultiCIDRServiceAllocator MutableCSINodeAllocatableCount MutablePodResourcesForSuspendedJobs
    MutableSchedulingDirectivesForSuspendedJobs MutatingAdmissionPolicy NFTablesProxyMode
    NodeInclusionPolicyInPodTopologySpread NodeLogQuery NodeSwap NominatedNodeNameForExpectation
    OpenAPIEnums OpportunisticBatching OrderedNamespaceDeletion PLEGOnDemandRelist PodDeletionCost
    PodLevelResources PodLifecycleSleepAction PodLifecycleSleepActionAllowZero
    PodObservedGenerationTracking PodReadyToStartContainersCondition PodSchedulingReadiness
    PodTopologyLabelsAdmission PortForwardWebsockets PreferSameTrafficDistribution
    PreventStaticPodAPIReferences ProcMountType RecoverVolumeExpansionFailure
    RecursiveReadOnlyMounts RelaxedDNSSearchValidation RelaxedEnvironmentVariableValidation
    RelaxedServiceNameValidation ReloadKubeletClientCAFile ReloadKubeletServerCertificateFile
    RemoteRequestHeaderUID ResilientWatchCacheInitialization
    ResourceHealthStatusMessage RestartAllContainersOnContainerExits RetryGenerateName
    RotateKubeletServerCertificate SELinuxChangePolicy SELinuxMountReadWriteOncePod
    SchedulerAsyncPreemption SchedulerPopFromBackoffQ SchedulerQueueingHints
    SeparateTaintEvictionController ServiceAccountNodeAudienceRestriction ServiceAccountTokenJTI
    ServiceAccountTokenNodeBinding ServiceAccountTokenNodeBindingValidation
    ServiceAccountTokenPodNodeInfo ServiceCIDRStatusFieldWiping SidecarContainers
    SizeBasedListCostEstimate StaleControllerConsistencyDaemonSet StaleControllerConsistencyJob
    StaleControllerConsistencyReplicaSet StaleControllerConsistencyStatefulSet
    StatefulSetSemanticRevisionComparison StorageNamespaceIndex StorageVersionHash
    StreamingCollectionEncodingToJSON StreamingCollectionEncodingToProtobuf StrictIPCIDRValidation
    StructuredAuthenticationConfiguration StructuredAuthenticationConfigurationEgressSelector
    StructuredAuthenticationConfigurationJWKSMetrics SupplementalGroupsPolicy SystemdWatchdog
    TokenRequestServiceAccountUIDValidation TopologyManagerPolicyBetaOptions
    TopologyManagerPolicyOptions TranslateStreamCloseWebsocketRequests
    UnauthenticatedHTTP2DOSMitigation UnknownVersionInteroperabilityProxy UserNamespacesSupport
    VolumeAttributesClass WatchCacheInitializationPostStartHook WatchList WinDSR WinOverlay
    WindowsGracefulNodeShutdown
"""

_OFF = """
    APIServingWithRoutine AllowDNSOnlyNodeCSR AllowInsecureKubeletCertificateSigningRequests
    AllowOverwriteTerminationGracePeriodSeconds AllowUnsafeMalformedObjectDeletion
    CBORServingAndStorage CPUManagerPolicyAlphaOptions CRIListStreaming CSIVolumeHealth
    ChangeContainerStatusOnKubeletRestart CloudControllerManagerWatchBasedRoutesReconciliation
    CloudControllerManagerWebhook ClusterTrustBundle ClusterTrustBundleProjection
    ConcurrentWatchObjectDecode ContainerStopSignals CoordinatedLeaderElection
    CrossNamespaceVolumeDataSource DRADeviceTaintRules DRAListTypeAttributes
    DRANodeAllocatableResources DRAResourcePoolStatus DRAWorkloadResourceClaims
    DeclarativeValidationTakeover EventedPLEG GangScheduling GenericWorkload GitRepoVolumeDriver
    HPAScaleToZero ImageVolumeWithDigest InPlacePodVerticalScalingExclusiveCPUs
    InPlacePodVerticalScalingExclusiveMemory KMSv1 KubeletInUserNamespace
    KubeletRegistrationGetOnExistsOnly LocalStorageCapacityIsolationFSQuotaMonitoring
    LoggingAlphaOptions ManifestBasedAdmissionControlConfig MaxUnavailableStatefulSet
    MutablePVNodeAffinity PersistentVolumeClaimUnusedSinceTime PodCertificateRequest
    PodLevelResourceManagers PodLogsQuerySplitStreams PodsAPI QOSReserved
    ReduceDefaultCrashLoopBackOffDecay RuntimeClassInImageCriApi SELinuxMount
    SchedulerAsyncAPICalls SeparateCacheWatchRPC ShardedListAndWatch StorageCapacityScoring
    StorageVersionAPI StorageVersionMigrator TaintTolerationComparisonOperators
    TopologyAwareWorkloadScheduling TopologyManagerPolicyAlphaOptions
    UserNamespacesHostNetworkSupport VolumeLimitScaling WindowsCPUAndMemoryAffinity
    WindowsHostNetwork WorkloadAwarePreemption WorkloadWithJob
"""

DEFAULTS: Mapping[str, bool] = {
    **dict.fromkeys(_ON.split(), True),
    **dict.fromkeys(_OFF.split(), False),
    _NEVER: False,
}


def refusal(name: str, value: bool) -> str:
    """Why a gate of the reference cannot be set so; "" when it can. KeyError for other names."""
    if DEFAULTS[name] == value or name == ROTATION:
        return ""
    state, wanted = ("on", "off") if DEFAULTS[name] else ("off", "on")
    return (
        f"not offered here: {name} cannot be switched {wanted}; it is a gate of the reference, "
        f"and nothing here depends on it. Leave it out, or {state}"
    )
