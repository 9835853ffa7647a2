"""The checks of level `restricted`, beside those of `baseline`: current hardening practice; pure.

Each follows the reference's policy/check_*.go, whose texts clients see.
"""

from __future__ import annotations

from orch.server.admission.pod_security import baseline
from orch.server.admission.pod_security.judged import (
    Check,
    Document,
    JudgedPod,
    Violation,
    names_of,
    offenders,
    plural,
    quoted,
    those_with_any,
    use,
)
from orch.wire import raw

_VOLUMES = frozenset(
    (
        "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image",
        "persistentVolumeClaim", "projected", "secret",
    )
)  # fmt: skip
_OTHER_VOLUMES = (
    "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "gitRepo", "nfs", "iscsi", "glusterfs",
    "rbd", "flexVolume", "cinder", "cephfs", "flocker", "fc", "azureFile", "vsphereVolume",
    "quobyte", "azureDisk", "photonPersistentDisk", "portworxVolume", "scaleIO", "storageos",
)  # fmt: skip
_ADDABLE = frozenset(("NET_BIND_SERVICE",))


def unless_windows(check: Check) -> Check:
    """Since 1.25: pods for Windows have no such field."""
    return lambda pod: None if pod.is_for_windows else check(pod)


def unless_own_users(check: Check) -> Check:
    """Since 1.35: root in a user namespace of its own is nobody on the node."""
    return lambda pod: None if pod.has_own_users else check(pod)


def privilege_escalation(pod: JudgedPod) -> Violation | None:
    found = [c.name for c in pod.containers if c.context.get("allowPrivilegeEscalation", True)]
    text = f"{names_of(found)} must set securityContext.allowPrivilegeEscalation=false"
    return Violation("allowPrivilegeEscalation != false", text) if found else None


def capabilities(pod: JudgedPod) -> Violation | None:
    keeping = [
        container.name
        for container in pod.containers
        if "ALL" not in (raw.value(container.context, "capabilities", "drop") or ())
    ]
    kept = f'{names_of(keeping)} must set securityContext.capabilities.drop=["ALL"]'
    texts = [kept if keeping else "", baseline.added_text(pod, _ADDABLE)]
    text = "; ".join(filter(None, texts))
    return Violation("unrestricted capabilities", text) if text else None


def volumes(pod: JudgedPod) -> Violation | None:
    names, kinds = those_with_any(
        [(volume["name"], _other_types(volume)) for volume in pod.volumes]
    )
    what = f"{plural('restricted volume type', kinds)} {quoted(kinds)}"
    text = f"{plural('volume', names)} {quoted(names)} {use(names)} {what}"
    return Violation("restricted volume types", text) if names else None


def _other_types(volume: Document) -> set[str]:
    """The restricted type of a volume, if it has one."""
    other = next((name for name in _OTHER_VOLUMES if name in volume), "")
    return {other or "unknown"} if other or _VOLUMES.isdisjoint(volume) else set()


def run_as_non_root(pod: JudgedPod) -> Violation | None:
    who, _ = offenders(pod, lambda c: "false" if c.get("runAsNonRoot") is False else None)
    if who:
        text = f"{who} must not set securityContext.runAsNonRoot=false"
        return Violation("runAsNonRoot != true", text)
    silent = [c.name for c in pod.containers if not c.context.get("runAsNonRoot")]
    if pod.context.get("runAsNonRoot") or not silent:
        return None
    text = f"pod or {names_of(silent)} must set securityContext.runAsNonRoot=true"
    return Violation("runAsNonRoot != true", text)


def run_as_user(pod: JudgedPod) -> Violation | None:
    who, _ = offenders(pod, lambda context: "0" if context.get("runAsUser") == 0 else None)
    return Violation("runAsUser=0", f"{who} must not set runAsUser=0") if who else None


def seccomp_profile(pod: JudgedPod) -> Violation | None:
    explicit = baseline.seccomp_profile(pod)
    silent = [c.name for c in pod.containers if not c.context.get("seccompProfile")]
    if explicit or pod.context.get("seccompProfile") or not silent:
        return explicit
    text = f"pod or {names_of(silent)} must set securityContext.seccompProfile.type to"
    return Violation("seccompProfile", f'{text} "RuntimeDefault" or "Localhost"')
