"""A file for the reference agent loads, or says what of it is not offered, and what to do."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeagent.config.load import ConfigError, load_config
from nodeagent.config.reference import ALIASES, UNOFFERED, UNOFFERED_LOGGING
from nodeagent.config.types import NodeAgentConfiguration

HEAD = "apiVersion: nodeagent.config.orch.io/v1beta1\nkind: NodeAgentConfiguration\n"

# k8s.io/kubelet/config/v1beta1/types.go, release 1.36: every field, its default there, and another
# value that means something. None: no default can be written down.
FIELDS: dict[str, tuple[Any, Any]] = {
    "enableServer": (True, False),
    "staticPodPath": ("", "/etc/manifests"),
    "podLogsDir": ("/var/log/pods", "/logs"),
    "syncFrequency": ("1m", "2m"),
    "fileCheckFrequency": ("20s", "30s"),
    "httpCheckFrequency": ("20s", "30s"),
    "staticPodURL": ("", "https://host/pods"),
    "staticPodURLHeader": (None, {"A": ["b"]}),
    "address": ("0.0.0.0", "127.0.0.1"),
    "port": (10250, 10251),
    "readOnlyPort": (0, 10255),
    "tlsCertFile": ("", "/a.crt"),
    "tlsPrivateKeyFile": ("", "/a.key"),
    "tlsCipherSuites": (None, ["TLS_AES_128_GCM_SHA256"]),
    "tlsCurvePreferences": (None, [29]),
    "tlsMinVersion": ("", "VersionTLS13"),
    "rotateCertificates": (False, True),
    "serverTLSBootstrap": (False, True),
    "authentication": ({}, {"anonymous": {"enabled": True}}),
    "authorization": ({}, {"mode": "AlwaysAllow"}),
    "registryPullQPS": (5, 6),
    "registryBurst": (10, 11),
    "imagePullCredentialsVerificationPolicy": ("", "AlwaysVerify"),
    "preloadedImagesVerificationAllowlist": (None, ["example.com/*"]),
    "eventRecordQPS": (50, 1),
    "eventBurst": (100, 1),
    "enableDebuggingHandlers": (True, False),
    "enableContentionProfiling": (False, True),
    "healthzPort": (10248, 10258),
    "healthzBindAddress": ("127.0.0.1", "0.0.0.0"),
    "oomScoreAdj": (-999, 0),
    "clusterDomain": ("", "cluster.local"),
    "clusterDNS": (None, ["10.96.0.10"]),
    "streamingConnectionIdleTimeout": ("4h", "5m"),
    "nodeStatusUpdateFrequency": ("10s", "11s"),
    "nodeStatusReportFrequency": ("5m", "6m"),
    "nodeLeaseDurationSeconds": (40, 41),
    "imageMinimumGCAge": ("2m", "3m"),
    "imageMaximumGCAge": ("0s", "24h"),
    "imageGCHighThresholdPercent": (85, 90),
    "imageGCLowThresholdPercent": (80, 70),
    "volumeStatsAggPeriod": ("1m", "2m"),
    "kubeletCgroups": ("", "/kubelet.slice"),
    "systemCgroups": ("", "/system.slice"),
    "cgroupRoot": ("/", "/pods"),
    "cgroupsPerQOS": (True, False),
    "cgroupDriver": ("cgroupfs", "systemd"),
    "cpuManagerPolicy": ("none", "static"),
    "singleProcessOOMKill": (None, False),
    "cpuManagerPolicyOptions": (None, {"full-pcpus-only": "true"}),
    "cpuManagerReconcilePeriod": ("10s", "5s"),
    "memoryManagerPolicy": ("None", "Static"),
    "topologyManagerPolicy": ("none", "best-effort"),
    "topologyManagerScope": ("container", "pod"),
    "topologyManagerPolicyOptions": (None, {"prefer-closest-numa-nodes": "true"}),
    "qosReserved": (None, {"memory": "50%"}),
    "runtimeRequestTimeout": ("2m", "3m"),
    "hairpinMode": ("promiscuous-bridge", "some"),
    "maxPods": (110, 50),
    "podCIDR": ("", "10.1.0.0/24"),
    "podPidsLimit": (-1, 100),
    "resolvConf": ("/etc/resolv.conf", "/run/resolv.conf"),
    "runOnce": (False, True),
    "cpuCFSQuota": (True, False),
    "cpuCFSQuotaPeriod": ("100ms", "10ms"),
    "nodeStatusMaxImages": (50, -1),
    "maxOpenFiles": (1000000, 1000),
    "contentType": ("application/vnd.kubernetes.protobuf", "application/cbor"),
    "kubeAPIQPS": (50, 10),
    "kubeAPIBurst": (100, 10),
    "serializeImagePulls": (True, False),
    "maxParallelImagePulls": (None, 1),
    "evictionHard": ({"memory.available": "100Mi"}, {"memory.available": "5%"}),
    "evictionSoft": (None, {}),
    "evictionSoftGracePeriod": (None, {"memory.available": "1m"}),
    "evictionPressureTransitionPeriod": ("5m", "1m"),
    "evictionMaxPodGracePeriod": (0, 30),
    "evictionMinimumReclaim": (None, {"memory.available": "1Mi"}),
    "mergeDefaultEvictionSettings": (False, True),
    "podsPerCore": (0, 10),
    "enableControllerAttachDetach": (True, "some"),
    "protectKernelDefaults": (False, True),
    "makeIPTablesUtilChains": (True, "some"),
    "iptablesMasqueradeBit": (14, 32),
    "iptablesDropBit": (15, 32),
    "featureGates": (None, {"NodeAgentPSI": False}),
    "failSwapOn": (True, False),
    "memorySwap": ({}, {"swapBehavior": "LimitedSwap"}),
    "containerLogMaxSize": ("10Mi", "20Mi"),
    "containerLogMaxFiles": (5, 6),
    "containerLogMaxWorkers": (1, 2),
    "containerLogMonitorInterval": ("10s", "20s"),
    "configMapAndSecretChangeDetectionStrategy": ("Watch", "Get"),
    "systemReserved": (None, {"cpu": "1"}),
    "kubeReserved": (None, {"cpu": "1"}),
    "reservedSystemCPUs": ("", "0-1"),
    "showHiddenMetricsForVersion": ("", "1.34"),
    "systemReservedCgroup": ("", "/system.slice"),
    "kubeReservedCgroup": ("", "/agent.slice"),
    "enforceNodeAllocatable": (["pods"], ["none"]),
    "allowedUnsafeSysctls": ([], ["kernel.msg*"]),
    "volumePluginDir": ("/usr/libexec/kubernetes/kubelet-plugins/volume/exec/", "/plugins"),
    "providerID": ("", "cloud://a"),
    "kernelMemcgNotification": (False, True),
    "logging": ({"format": "text"}, {"format": "json"}),
    "enableSystemLogHandler": (True, "some"),
    "enableSystemLogQuery": (False, True),
    "shutdownGracePeriod": ("0s", "30s"),
    "shutdownGracePeriodCriticalPods": ("0s", "10s"),
    "shutdownGracePeriodByPodPriority": (
        None,
        [{"priority": 1, "shutdownGracePeriodSeconds": 5}],
    ),
    "crashLoopBackOff": ({}, {"maxContainerRestartPeriod": "1m"}),
    "reservedMemory": (None, [{"limits": {"memory": "1Gi"}, "numaNode": 0}]),
    "enableProfilingHandler": (True, "some"),
    "enableDebugFlagsHandler": (True, "some"),
    "seccompDefault": (False, True),
    "memoryThrottlingFactor": (0.9, 0.8),
    "memoryReservationPolicy": ("None", "TieredReservation"),
    "registerWithTaints": (None, [{"key": "a", "effect": "NoSchedule"}]),
    "registerNode": (True, False),
    "tracing": (None, {"endpoint": "localhost:4317"}),
    "localStorageCapacityIsolation": (True, False),
    "containerRuntimeEndpoint": ("unix:///run/containerd/containerd.sock", "unix:///run/a"),
    "imageServiceEndpoint": ("", "unix:///run/a"),
    "failCgroupV1": (True, False),
    "userNamespaces": ({"idsPerPod": 65536}, {"idsPerPod": 131072}),
}
# Given alone, these only make sense with another.
COMPANIONS: dict[str, dict[str, Any]] = {
    "tlsCertFile": {"tlsPrivateKeyFile": "/a.key"},
    "tlsPrivateKeyFile": {"tlsCertFile": "/a.crt"},
}


def load(path: Path, fields: dict[str, Any]) -> NodeAgentConfiguration:
    path.write_text(HEAD + yaml.safe_dump(fields))
    return load_config(str(path), None)


@pytest.mark.parametrize("name", FIELDS)
def test_the_default_of_the_reference_can_be_written_down(name: str, tmp_path: Path) -> None:
    load(tmp_path / "agent.yaml", {name: FIELDS[name][0]})


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_of_the_reference_is_acted_on_or_refused_with_what_to_do(
    name: str, tmp_path: Path
) -> None:
    fields, path = {name: FIELDS[name][1], **COMPANIONS.get(name, {})}, tmp_path / "agent.yaml"
    ours = ALIASES.get(name, name)
    if ours in NodeAgentConfiguration.model_fields:
        shown = load(path, fields).model_dump(mode="json")[ours]
        assert shown != NodeAgentConfiguration().model_dump(mode="json")[ours] or (
            FIELDS[name][1] in ({}, False)
        )
        return
    with pytest.raises(ConfigError) as refused:
        load(path, fields)
    head, _, remedy = str(refused.value).partition("; ")
    value = FIELDS[name][1]
    shown = str(value).lower() if isinstance(value, bool) else repr(value)  # as YAML has it
    assert head == f"{path}:3: {name}: not offered here: {shown}"
    assert len(remedy) > 15


def test_no_field_is_both_offered_and_not() -> None:
    assert UNOFFERED.keys() <= FIELDS.keys()
    assert not UNOFFERED.keys() & NodeAgentConfiguration.model_fields.keys()
    assert not UNOFFERED_LOGGING.keys() & {"format", "level", "verbosity"}


# What `kubeadm init` writes, but for the fields that are refused below.
KUBEADM = """
authentication:
  anonymous: {enabled: false}
  webhook: {cacheTTL: 0s, enabled: true}
  x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}
authorization:
  mode: Webhook
  webhook: {cacheAuthorizedTTL: 0s, cacheUnauthorizedTTL: 0s}
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
containerRuntimeEndpoint: ""
cpuManagerReconcilePeriod: 0s
crashLoopBackOff: {}
evictionPressureTransitionPeriod: 0s
fileCheckFrequency: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
httpCheckFrequency: 0s
imageMaximumGCAge: 0s
imageMinimumGCAge: 0s
logging:
  flushFrequency: 0
  options: {json: {infoBufferSize: "0"}, text: {infoBufferSize: "0"}}
  verbosity: 0
memorySwap: {}
nodeStatusReportFrequency: 0s
nodeStatusUpdateFrequency: 0s
runtimeRequestTimeout: 0s
shutdownGracePeriod: 0s
shutdownGracePeriodCriticalPods: 0s
staticPodPath: /etc/kubernetes/manifests
streamingConnectionIdleTimeout: 0s
syncFrequency: 0s
volumeStatsAggPeriod: 0s
"""


def test_a_file_that_kubeadm_wrote_loads_and_its_zeros_ask_for_defaults(tmp_path: Path) -> None:
    config = load(tmp_path / "agent.yaml", yaml.safe_load(KUBEADM))
    assert (config.fileCheckFrequency, config.runtimeRequestTimeout) == (20.0, 120.0)
    assert (config.nodeStatusUpdateFrequency, config.nodeStatusReportFrequency) == (10.0, 300.0)
    assert (config.clusterDomain, config.logging.level) == ("cluster.local", "info")


def test_all_that_is_not_offered_is_named_at_once_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(
        f"{HEAD}enableContentionProfiling: true\nmaxPods: many\ncgroupDriver: systemd\n"
    )
    with pytest.raises(ConfigError) as refused:
        load_config(str(path), None)
    lines = sorted(str(refused.value).splitlines())
    assert lines[0].startswith(f"{path}:3: enableContentionProfiling: not offered here: true; ")
    assert lines[1].startswith(f"{path}:4: maxPods: ")
    assert lines[2].startswith(f"{path}:5: cgroupDriver: not offered here: 'systemd'; ")
    assert "SystemdCgroup = false" in lines[2]


def test_a_file_of_the_reference_is_told_both_names_to_change(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n")
    with pytest.raises(ConfigError) as refused:
        load_config(str(path), None)
    assert str(refused.value).splitlines() == [
        f"{path}:1: apiVersion: 'kubelet.config.k8s.io/v1beta1' is unknown; "
        "use nodeagent.config.orch.io/v1beta1",
        f"{path}:2: kind: 'KubeletConfiguration' is unknown; use NodeAgentConfiguration",
    ]


def test_kube_reserved_is_what_is_reserved_for_the_agent(tmp_path: Path) -> None:
    main, drop_in = tmp_path / "agent.yaml", tmp_path / "d" / "10.conf"
    main.write_text(f"{HEAD}kubeReserved: {{cpu: 100m, memory: 1Gi}}\n")
    drop_in.parent.mkdir()
    drop_in.write_text(f"{HEAD}nodeagentReserved: {{cpu: 200m}}\n")
    config = load_config(str(main), str(drop_in.parent))
    assert config.nodeagentReserved == {"cpu": "200m", "memory": "1Gi"}
    main.write_text(f"{HEAD}kubeReserved: {{cpu: -1}}\n")
    with pytest.raises(ConfigError, match=rf"^{main}:3: kubeReserved.cpu: -1 must not be neg"):
        load_config(str(main), None)
    drop_in.write_text(f"{HEAD}nodeagentReserved: {{cpu: -2}}\n")
    with pytest.raises(ConfigError, match=rf"^{drop_in}:3: nodeagentReserved.cpu: -2 must not be"):
        load_config(str(main), str(drop_in.parent))
    main.write_text(f"{HEAD}nodeagentReserved: {{}}\nkubeReserved: {{cpu: 1}}\n")
    with pytest.raises(ConfigError, match=rf"^{main}:4: kubeReserved: this is nodeagentReserved"):
        load_config(str(main), None)


@pytest.mark.parametrize(
    ("logging", "level"),
    [
        ({"verbosity": 2}, "info"),
        ({"verbosity": 4}, "debug"),
        ({"verbosity": 9, "level": "error"}, "error"),
        ({"flushFrequency": "5s", "vmodule": []}, "info"),
    ],
)
def test_verbosity_is_a_level(logging: dict[str, Any], level: str, tmp_path: Path) -> None:
    assert load(tmp_path / "agent.yaml", {"logging": logging}).logging.level == level


@pytest.mark.parametrize(
    ("logging", "field"),
    [
        ({"verbosity": "much"}, "verbosity"),
        ({"verbosity": -1}, "verbosity"),
        ({"flushFrequency": "1m"}, "flushFrequency"),
        ({"vmodule": [{"filePattern": "a", "verbosity": 5}]}, "vmodule"),
        ({"options": {"json": {"splitStream": True}}}, "options"),
        ({"options": {"xml": {}}}, "options"),
        ({"options": 5}, "options"),
    ],
)
def test_other_settings_of_the_log_are_refused(
    logging: dict[str, Any], field: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=rf"agent.yaml:\d: logging.{field}: "):
        load(tmp_path / "agent.yaml", {"logging": logging})
