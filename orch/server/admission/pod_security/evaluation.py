"""Which checks a level and version comprise, and what they find together; pure.

As the reference's policy/registry.go: `restricted` runs the checks of `baseline`, except those that
one of its own replaces; texts list baseline checks first, each group in the order of its names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

from orch.server.admission.pod_security import baseline, restricted
from orch.server.admission.pod_security.judged import Check, JudgedPod, Violation
from orch.server.admission.pod_security.levels import BASELINE, PRIVILEGED, LevelVersion
from orch.server.admission.pod_security.restricted import unless_own_users, unless_windows

NEWEST = 37  # the last minor version that changed a check
_DETAIL_MAX = 16_384  # characters; names of containers and values are the client's

_Versions = Mapping[int, Check]  # first minor version → the check from then on

_BASELINE: Mapping[str, _Versions] = {
    "appArmorProfile": {0: baseline.apparmor_profile},
    "capabilities_baseline": {0: baseline.capabilities},
    "hostNamespaces": {0: baseline.host_namespaces},
    "hostPathVolumes": {0: baseline.host_path_volumes},
    "hostPorts": {0: baseline.host_ports},
    "hostProbesAndHostLifecycle": {34: baseline.host_probes},
    "privileged": {0: baseline.privileged},
    "procMount": {0: baseline.proc_mount, 35: unless_own_users(baseline.proc_mount)},
    "seLinuxOptions": {0: baseline.selinux_options, 31: baseline.selinux_options_1_31},
    "seccompProfile_baseline": {0: baseline.seccomp_annotations, 19: baseline.seccomp_profile},
    "sysctls": {minor: partial(baseline.sysctls, minor=minor) for minor in (0, 27, 29, 32, NEWEST)},
    "windowsHostProcess": {0: baseline.windows_host_process},
}
_RESTRICTED: Mapping[str, _Versions] = {
    "allowPrivilegeEscalation": {
        8: restricted.privilege_escalation,
        25: unless_windows(restricted.privilege_escalation),
    },
    "capabilities_restricted": {
        22: restricted.capabilities,
        25: unless_windows(restricted.capabilities),
    },
    "procMount_restricted": {35: baseline.proc_mount},
    "restrictedVolumes": {0: restricted.volumes},
    "runAsNonRoot": {
        0: restricted.run_as_non_root,
        35: unless_own_users(restricted.run_as_non_root),
    },
    "runAsUser": {23: restricted.run_as_user, 35: unless_own_users(restricted.run_as_user)},
    "seccompProfile_restricted": {
        19: restricted.seccomp_profile,
        25: unless_windows(restricted.seccomp_profile),
    },
}
_REPLACES = {
    "capabilities_restricted": "capabilities_baseline",
    "procMount_restricted": "procMount",
    "restrictedVolumes": "hostPathVolumes",
    "seccompProfile_restricted": "seccompProfile_baseline",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong with a pod; nothing when it is allowed."""

    violations: tuple[Violation, ...] = ()

    @property
    def is_allowed(self) -> bool:
        return not self.violations

    @property
    def reason(self) -> str:
        return ", ".join(violation.reason for violation in self.violations)

    @property
    def detail(self) -> str:
        """The reasons with what is not allowed, cut where a pod has very much of it."""
        text = ", ".join(
            f"{violation.reason} ({violation.detail})" for violation in self.violations
        )
        return text if len(text) <= _DETAIL_MAX else f"{text[:_DETAIL_MAX]}…"


def evaluate(asked: LevelVersion, pod: JudgedPod, newest: int = NEWEST) -> Verdict:
    """The verdict of a level and version; `newest` is that of this server, and means `latest`."""
    checks = _checks(asked.level, min(asked.minor, newest, NEWEST))
    return Verdict(tuple(found for check in checks if (found := check(pod)) is not None))


@lru_cache(maxsize=3 * (NEWEST + 1))
def _checks(level: str, minor: int) -> tuple[Check, ...]:
    if level == PRIVILEGED:
        return ()
    basic = dict(_active(_BASELINE, minor))
    if level == BASELINE:
        return tuple(basic.values())
    further = dict(_active(_RESTRICTED, minor))
    for name in further:
        basic.pop(_REPLACES.get(name, ""), None)
    return (*basic.values(), *further.values())


def _active(checks: Mapping[str, _Versions], minor: int) -> Iterator[tuple[str, Check]]:
    for name, versions in checks.items():
        since = [first for first in versions if first <= minor]
        if since:
            yield name, versions[max(since)]
