"""The checks of level `baseline`: no known way from a pod to its node; pure.

Each follows the reference's policy/check_*.go, whose texts clients see.
"""

from __future__ import annotations

from collections.abc import Iterator

from orch.server.admission.pod_security.judged import (
    Document,
    JudgedPod,
    Violation,
    annotation,
    names_of,
    offenders,
    part_of,
    plural,
    quoted,
    text_of,
    those_with_any,
    use,
)
from orch.wire import names, raw

_SECCOMP_ANNOTATION_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_ANNOTATION = "container.seccomp.security.alpha.kubernetes.io/"
ANNOTATIONS = (names.ANNOTATION_APPARMOR_PREFIX, _SECCOMP_ANNOTATION_POD, _SECCOMP_ANNOTATION)
_PROFILES = ("RuntimeDefault", "Localhost")  # of AppArmor and of seccomp
_CAPABILITIES = frozenset(
    (
        "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD",
        "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
    )
)  # fmt: skip
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS = ("postStart", "preStop")
_SELINUX_TYPES = ("", "container_t", "container_init_t", "container_kvm_t")
SYSCTLS = {  # first minor version that allows it
    "kernel.shm_rmid_forced": 0,
    "net.ipv4.ip_local_port_range": 0,
    "net.ipv4.ip_unprivileged_port_start": 0,
    "net.ipv4.ping_group_range": 0,
    "net.ipv4.tcp_syncookies": 0,
    "net.ipv4.ip_local_reserved_ports": 27,
    "net.ipv4.tcp_fin_timeout": 29,
    "net.ipv4.tcp_keepalive_intvl": 29,
    "net.ipv4.tcp_keepalive_probes": 29,
    "net.ipv4.tcp_keepalive_time": 29,
    "net.ipv4.tcp_rmem": 32,
    "net.ipv4.tcp_wmem": 32,
    "net.ipv4.tcp_notsent_lowat": 37,
    "net.ipv4.tcp_slow_start_after_idle": 37,
}


def apparmor_profile(pod: JudgedPod) -> Violation | None:
    who, values = offenders(pod, lambda context: _wrong_profile(context, "appArmorProfile"))
    by = [who] if who else []
    written = sorted(
        annotation(key, value)
        for key, value in pod.annotations.items()
        if key.startswith(names.ANNOTATION_APPARMOR_PREFIX) and not _may_be_annotated(value, "")
    )
    by += [plural("annotation", written)] if written else []
    if not by:
        return None
    bad = [*values, *written]
    text = f"{' and '.join(by)} must not set AppArmor profile type to {quoted(bad)}"
    return Violation(plural("forbidden AppArmor profile", bad), text)


def _wrong_profile(context: Document, name: str) -> str | None:
    """The type of a profile that may not be set; None for none, or one that may."""
    if context.get(name) is None:
        return None
    kind = text_of(part_of(context, name, "type").get("type"))
    return None if kind in _PROFILES else kind


def _may_be_annotated(profile: object, *others: str) -> bool:
    text = text_of(profile)
    return text in ("runtime/default", *others) or text.startswith("localhost/")


def capabilities(pod: JudgedPod) -> Violation | None:
    text = added_text(pod, _CAPABILITIES)
    return Violation("non-default capabilities", text) if text else None


def added_text(pod: JudgedPod, allowed: frozenset[str]) -> str:
    """Which containers add other capabilities, and which; "" for none."""
    added = [
        (container.name, {*(raw.value(container.context, "capabilities", "add") or ())} - allowed)
        for container in pod.secured
    ]
    containers, values = those_with_any(added)
    text = f"{names_of(containers)} must not include {quoted(values)}"
    return f"{text} in securityContext.capabilities.add" if containers else ""


def host_namespaces(pod: JudgedPod) -> Violation | None:
    found = [name for name in ("hostNetwork", "hostPID", "hostIPC") if pod.spec.get(name)]
    text = ", ".join(f"{name}=true" for name in found)
    return Violation("host namespaces", text) if found else None


def host_path_volumes(pod: JudgedPod) -> Violation | None:
    found = [volume["name"] for volume in pod.volumes if volume.get("hostPath") is not None]
    text = f"{plural('volume', found)} {quoted(found)}"
    return Violation("hostPath volumes", text) if found else None


def host_ports(pod: JudgedPod) -> Violation | None:
    used = [
        (container.name, {str(p["hostPort"]) for p in listed if p.get("hostPort")})
        for container in pod.containers
        if (listed := container.fields.get("ports"))
    ]
    containers, ports = those_with_any(used)
    text = f"{names_of(containers)} {use(containers)} {plural('hostPort', ports)}"
    return Violation("hostPort", f"{text} {', '.join(ports)}") if containers else None


def host_probes(pod: JudgedPod) -> Violation | None:
    probed = [(container.name, {*_probed_hosts(container.fields)}) for container in pod.containers]
    containers, hosts = those_with_any(probed)
    what = f"{plural('probe or lifecycle host', hosts)} {quoted(hosts)}"
    text = f"{names_of(sorted(containers))} {use(containers)} {what}"
    return Violation("probe or lifecycle host", text) if containers else None


def _probed_hosts(container: Document) -> Iterator[str]:
    hooks = container.get("lifecycle") or {}
    handlers = [container.get(name) for name in _PROBES]
    handlers += [hooks.get(name) for name in _HOOKS]
    for handler in filter(None, handlers):
        for action in ("httpGet", "tcpSocket"):
            host = text_of(raw.value(handler, action, "host"))
            if host:
                yield host


def privileged(pod: JudgedPod) -> Violation | None:
    found = [container.name for container in pod.secured if container.context.get("privileged")]
    text = f"{names_of(found)} must not set securityContext.privileged=true"
    return Violation("privileged", text) if found else None


def proc_mount(pod: JudgedPod) -> Violation | None:
    mounts = [
        (container.name, {text_of(mount)} - {"Default"})
        for container in pod.secured
        if (mount := container.context.get("procMount")) is not None
    ]
    containers, values = those_with_any(mounts)
    text = f"{names_of(containers)} must not set securityContext.procMount to {quoted(values)}"
    return Violation("procMount", text) if containers else None


def selinux_options(pod: JudgedPod, *further_types: str) -> Violation | None:
    kinds: set[str] = set()
    named: set[str] = set()

    def wrong(context: Document) -> str | None:
        options = part_of(context, "seLinuxOptions", "type")
        found = {name for name in ("user", "role") if options.get(name)}
        kind = text_of(options.get("type"))
        named.update(found)
        if kind in (*_SELINUX_TYPES, *further_types):
            return kind if found else None
        kinds.add(kind)
        return kind

    who, _ = offenders(pod, wrong)
    if not who:
        return None
    bad = [f"{plural('type', kinds)} {quoted(sorted(kinds))}"] if kinds else []
    bad += [f"{name} may not be set" for name in ("user", "role") if name in named]
    text = f"{who} set forbidden securityContext.seLinuxOptions: {'; '.join(bad)}"
    return Violation("seLinuxOptions", text)


def selinux_options_1_31(pod: JudgedPod) -> Violation | None:
    return selinux_options(pod, "container_engine_t")


def seccomp_annotations(pod: JudgedPod) -> Violation | None:
    keys = {_SECCOMP_ANNOTATION_POD, *(_SECCOMP_ANNOTATION + c.name for c in pod.containers)}
    bad = sorted(
        annotation(key, pod.annotations[key])
        for key in keys & pod.annotations.keys()
        if not _may_be_annotated(pod.annotations[key], "docker/default")
    )
    text = f"forbidden {plural('annotation', bad)} {', '.join(bad)}"
    return Violation("seccompProfile", text) if bad else None


def seccomp_profile(pod: JudgedPod) -> Violation | None:
    who, kinds = offenders(pod, lambda context: _wrong_profile(context, "seccompProfile"))
    text = f"{who} must not set securityContext.seccompProfile.type to {quoted(kinds)}"
    return Violation("seccompProfile", text) if who else None


def sysctls(pod: JudgedPod, minor: int) -> Violation | None:
    found = [text_of(sysctl.get("name")) for sysctl in pod.context.get("sysctls") or ()]
    bad = [name for name in found if SYSCTLS.get(name, minor + 1) > minor]
    return Violation("forbidden sysctls", ", ".join(bad)) if bad else None


def windows_host_process(pod: JudgedPod) -> Violation | None:
    def wrong(context: Document) -> str | None:
        options = part_of(context, "windowsOptions", "hostProcess")
        return "true" if options.get("hostProcess") else None

    who, _ = offenders(pod, wrong)
    text = f"{who} must not set securityContext.windowsOptions.hostProcess=true"
    return Violation("hostProcess", text) if who else None
