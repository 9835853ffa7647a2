"""Fields of the reference agent's record (v1beta1, release 1.36) that have no switch here; pure.

A file written for the reference loads: what it says of such a field is dropped if it is what this
agent does anyway, or the reference's default, and refused with what to do instead if not. Names of
the reference that have one of ours are in `ALIASES`. Must not know files or origins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from orch.component.yaml_file import FieldPath
from orch.wire import times

# The reference's name of a field → ours.
ALIASES: Mapping[str, str] = {
    "kubeReserved": "nodeagentReserved",
    "kubeReservedCgroup": "nodeagentReservedCgroup",
}


class Unoffered(NamedTuple):
    """A field that changes nothing here: the values that are accepted, and what to do instead."""

    accepts: Callable[[Any], bool]
    remedy: str


def _only(*values: Any) -> Callable[[Any], bool]:
    """Of these values and types: `1` is not `True`."""
    return lambda value: any(type(value) is type(one) and value == one for one in values)


def _lasts(text: str) -> Callable[[Any], bool]:
    """This duration however it is written, or none, which asks for the default."""

    def accepts(value: Any) -> bool:
        try:
            return isinstance(value, str) and times.parse_duration(value) in (
                0.0,
                times.parse_duration(text),
            )
        except ValueError:
            return False

    return accepts


_EITHER = _only(True, False)
_EMPTY = _only("", [], {})

_PINNING = "cpus and memory are not pinned; leave the field out, or reserve with systemReserved"
_RATES = "the agent bounds its own requests; leave the field out"
_UNDER_SYSTEMD = "set {} in the unit of the agent"

# k8s.io/kubelet/config/v1beta1/types.go
UNOFFERED: Mapping[str, Unoffered] = {
    # serving
    "enableServer": Unoffered(
        _only(True), "the agent always serves; set address to 127.0.0.1 to keep others out"
    ),
    "tlsCurvePreferences": Unoffered(_EMPTY, "the TLS library chooses the curves; leave it out"),
    "enableContentionProfiling": Unoffered(_only(False), "there is no profile of locks"),
    "enableProfilingHandler": Unoffered(_EITHER, "there is no page of profiles"),
    "enableDebugFlagsHandler": Unoffered(_EITHER, "send SIGHUP to change logging.level"),
    "enableSystemLogHandler": Unoffered(_EITHER, "the agent does not show the machine's logs"),
    "enableSystemLogQuery": Unoffered(
        _only(False), "the agent does not show the machine's logs; read them with journalctl"
    ),
    "showHiddenMetricsForVersion": Unoffered(
        _EMPTY, "use the flag --show-hidden-metrics-for-version"
    ),
    # pods
    "syncFrequency": Unoffered(
        _lasts("1m"), "pods are looked at when something changes; leave the field out"
    ),
    "runOnce": Unoffered(_only(False), "the agent runs until it is stopped"),
    "podCIDR": Unoffered(_EMPTY, "configure the addresses of pods in the runtime's network plugin"),
    "hairpinMode": Unoffered(
        _only("", "promiscuous-bridge", "hairpin-veth", "none"),
        "the runtime's network plugin decides; leave the field out",
    ),
    "makeIPTablesUtilChains": Unoffered(_EITHER, "it has no effect in the reference either"),
    "iptablesMasqueradeBit": Unoffered(
        _only(*range(32)), "it has no effect in the reference either"
    ),
    "iptablesDropBit": Unoffered(_only(*range(32)), "it has no effect in the reference either"),
    "enableControllerAttachDetach": Unoffered(
        _EITHER, "there are no volumes that would be attached"
    ),
    "volumePluginDir": Unoffered(
        _only("", "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/"),
        "there are no plugins for volumes; leave the field out",
    ),
    "volumeStatsAggPeriod": Unoffered(
        _lasts("1m"), "directories are measured once a minute; leave the field out"
    ),
    "localStorageCapacityIsolation": Unoffered(
        _only(True), "disk bounds of pods always hold; set none on the pods"
    ),
    "configMapAndSecretChangeDetectionStrategy": Unoffered(
        _only("", "Watch", "Cache"), "objects are compared once a minute; leave the field out"
    ),
    "containerLogMaxWorkers": Unoffered(
        _only(1), "logs are rotated one after the other; leave the field out"
    ),
    "imagePullCredentialsVerificationPolicy": Unoffered(
        _only("", "NeverVerify"),
        "a pod may use every image on the node; set NeverVerify, and imagePullPolicy: Always "
        "on the pods",
    ),
    "preloadedImagesVerificationAllowlist": Unoffered(
        _EMPTY, "a pod may use every image on the node; leave the field out"
    ),
    "userNamespaces": Unoffered(
        _only({}, {"idsPerPod": 65536}), "a pod has 65536 ids; leave the field out"
    ),
    # resources
    "cgroupsPerQOS": Unoffered(_only(True), "pods always have cgroups by their class"),
    "cgroupDriver": Unoffered(
        _only("", "cgroupfs"),
        "pods run in cgroups that the agent makes itself; set cgroupDriver: cgroupfs, and "
        "SystemdCgroup = false in the runtime",
    ),
    "kubeletCgroups": Unoffered(_EMPTY, _UNDER_SYSTEMD.format("Slice=")),
    "cpuManagerPolicy": Unoffered(_only("", "none", "None"), _PINNING),
    "cpuManagerPolicyOptions": Unoffered(_EMPTY, _PINNING),
    "cpuManagerReconcilePeriod": Unoffered(_lasts("10s"), _PINNING),
    "memoryManagerPolicy": Unoffered(_only("", "none", "None"), _PINNING),
    "reservedMemory": Unoffered(_EMPTY, _PINNING),
    "topologyManagerPolicy": Unoffered(_only("", "none"), _PINNING),
    "topologyManagerScope": Unoffered(_only("", "container"), _PINNING),
    "topologyManagerPolicyOptions": Unoffered(_EMPTY, _PINNING),
    "reservedSystemCPUs": Unoffered(_EMPTY, _PINNING),
    "qosReserved": Unoffered(_EMPTY, "memory is not reserved by class; leave the field out"),
    # the agent and its machine
    "oomScoreAdj": Unoffered(_only(-999), _UNDER_SYSTEMD.format("OOMScoreAdjust=")),
    "maxOpenFiles": Unoffered(_only(0, 1_000_000), _UNDER_SYSTEMD.format("LimitNOFILE=")),
    "protectKernelDefaults": Unoffered(
        _only(False), "the agent checks no sysctl of the machine; set them in /etc/sysctl.d"
    ),
    "crashLoopBackOff": Unoffered(
        _only({}, {"maxContainerRestartPeriod": "5m"}), "back-off ends at 5m; leave it out"
    ),
    "kernelMemcgNotification": Unoffered(
        _only(False), "memory is measured at housekeepingInterval; shorten that"
    ),
    "imageServiceEndpoint": Unoffered(
        _EMPTY, "images come from containerRuntimeEndpoint; leave the field out"
    ),
    "contentType": Unoffered(
        _only("", "application/vnd.kubernetes.protobuf", "application/json"),
        "the API is spoken in JSON; leave the field out",
    ),
    "kubeAPIQPS": Unoffered(_only(50), _RATES),
    "kubeAPIBurst": Unoffered(_only(0, 100), _RATES),
    "eventRecordQPS": Unoffered(_only(50), _RATES),
    "eventBurst": Unoffered(_only(0, 100), _RATES),
    "tracing": Unoffered(_EMPTY, "the agent sends no traces; leave the field out"),
}

# Of `logging`, whose format is our field too.
UNOFFERED_LOGGING: Mapping[str, Unoffered] = {
    "flushFrequency": Unoffered(
        lambda value: _only(0, 5_000_000_000)(value) or _lasts("5s")(value),
        "lines are written at once; leave the field out",
    ),
    "vmodule": Unoffered(_EMPTY, "there is one level for all modules; set logging.level"),
    "options": Unoffered(
        lambda value: all(_is_plain(value, name) for name in ("text", "json")),
        "all lines go to standard error; leave the field out",
    ),
}
# At these an explicit zero asks for the default, as in files that kubeadm writes.
_ZERO_IS_DEFAULT = (
    "fileCheckFrequency",
    "httpCheckFrequency",
    "nodeStatusReportFrequency",
    "nodeStatusUpdateFrequency",
    "runtimeRequestTimeout",
)
_DEBUG_VERBOSITY = 4  # from here on the reference writes what we call debug


def _is_plain(value: Any, name: str) -> bool:
    """Whether the options of a format of the log are the defaults."""
    if not isinstance(value, dict) or set(value) - {"text", "json"}:
        return False
    options = value.get(name, {})
    return isinstance(options, dict) and all(
        (key, str(option)) in (("splitStream", "False"), ("infoBufferSize", "0"))
        for key, option in options.items()
    )


def translate(merged: dict[str, Any]) -> Iterator[tuple[FieldPath, str]]:
    """Take what the reference alone knows out of a merged document; yields what is refused."""
    yield from _drop(merged, UNOFFERED, ())
    for name in _ZERO_IS_DEFAULT:
        if _only("0", "0s")(merged.get(name)):
            del merged[name]
    logging = merged.get("logging")
    if isinstance(logging, dict):
        yield from _drop(logging, UNOFFERED_LOGGING, ("logging",))
        yield from _verbosity(logging)


def _drop(
    record: dict[str, Any], unoffered: Mapping[str, Unoffered], at: FieldPath
) -> Iterator[tuple[FieldPath, str]]:
    for name in [name for name in record if name in unoffered]:
        value = record.pop(name)
        if not unoffered[name].accepts(value):
            shown = str(value).lower() if isinstance(value, bool) else repr(value)
            yield (*at, name), f"not offered here: {shown:.80}; {unoffered[name].remedy}"


def _verbosity(logging: dict[str, Any]) -> Iterator[tuple[FieldPath, str]]:
    """The reference's numbers become a level, unless one is set."""
    value = logging.pop("verbosity", 0)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        yield ("logging", "verbosity"), f"{value!r:.80} is not a number from 0"
    elif value >= _DEBUG_VERBOSITY:
        logging.setdefault("level", "debug")
