"""Pods, and which versions of which level refuse each for what, in the words clients see.

Written from the reference's documentation of the Pod Security Standards and the texts of its
policy/check_*.go. Every case is a change of a pod that each version of each level allows.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

NEVER = 99  # a first version that has not come

MINIMAL: dict[str, Any] = {
    "metadata": {"name": "p"},
    "spec": {
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "initContainers": [
            {
                "name": "i",
                "image": "a",
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
        "containers": [
            {
                "name": "c",
                "image": "a",
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
    },
}


@dataclass(frozen=True)
class Case:
    """`spec`, `pod`, `container` and `fields` are merged into the spec, its security context, the
    security context of container `c`, and that container; None removes.

    `baseline` and `restricted` are the first minor version that refuses; `until` the first that no
    longer does (`restricted_until` where that level differs). `text` is in what the newest version
    of `restricted` says that refuses.
    """

    text: str = ""
    baseline: int = NEVER
    restricted: int = NEVER
    until: int = NEVER
    spec: dict[str, Any] = field(default_factory=dict)
    pod: dict[str, Any] = field(default_factory=dict)
    container: dict[str, Any] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    restricted_until: int | None = None

    def made(self) -> dict[str, Any]:
        document = copy.deepcopy(MINIMAL)
        spec = document["spec"]
        container = spec["containers"][0]
        for record, changes in (
            (spec, self.spec),
            (spec["securityContext"], self.pod),
            (container["securityContext"], self.container),
            (container, self.fields),
        ):
            for name, value in changes.items():
                record[name] = value
                if value is None:
                    del record[name]
        document["metadata"]["annotations"] = self.annotations
        return document

    def is_refused(self, level: str, minor: int) -> bool:
        if level == "baseline":
            return self.baseline <= minor < self.until
        until = self.until if self.restricted_until is None else self.restricted_until
        return self.restricted <= minor < until


def _volume(source: str) -> Case:
    kind = f'restricted volume types (volume "v" uses restricted volume type "{source}")'
    baseline = 0 if source == "hostPath" else NEVER
    return Case(kind, baseline, 0, spec={"volumes": [_made(source)]})


def _made(source: str) -> dict[str, Any]:
    """A volume with all that it must have."""
    return {"name": "v", source: dict.fromkeys((_VOLUMES | _FREE_VOLUMES)[source].split(), "/x")}


def _sysctl(name: str, until: int) -> Case:
    sysctls = [{"name": name, "value": "1"}]
    return Case(f"forbidden sysctls ({name})", 0, 0, until, pod={"sysctls": sysctls})


def _probe(**handler: Any) -> Case:
    text = 'probe or lifecycle host (container "c" uses probe or lifecycle host "10.0.0.1")'
    return Case(text, 34, 34, fields=handler)


_AT = {"host": "10.0.0.1", "port": 80}
_SECCOMP = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_C = "container.seccomp.security.alpha.kubernetes.io/c"
_APPARMOR = "container.apparmor.security.beta.kubernetes.io/c"
_WINDOWS = {"name": "windows"}
_VOLUMES = {  # and the fields that they must have
    "hostPath": "path", "gcePersistentDisk": "pdName", "awsElasticBlockStore": "volumeID",
    "gitRepo": "repository", "nfs": "server path", "iscsi": "targetPortal iqn",
    "glusterfs": "endpoints path", "rbd": "monitors image", "flexVolume": "driver",
    "cinder": "volumeID", "cephfs": "monitors", "flocker": "datasetName", "fc": "wwids",
    "azureFile": "secretName shareName", "vsphereVolume": "volumePath",
    "quobyte": "registry volume", "azureDisk": "diskName diskURI", "photonPersistentDisk": "pdID",
    "portworxVolume": "volumeID", "scaleIO": "gateway system volumeName",
    "storageos": "volumeName",
}  # fmt: skip
_FREE_VOLUMES = {
    "configMap": "name", "csi": "driver", "downwardAPI": "", "emptyDir": "",
    "ephemeral": "volumeClaimTemplate", "image": "reference", "persistentVolumeClaim": "claimName",
    "projected": "", "secret": "secretName",
}  # fmt: skip

CASES: dict[str, Case] = {
    "nothing": Case(),
    "host network": Case("host namespaces (hostNetwork=true)", 0, 0, spec={"hostNetwork": True}),
    "all host namespaces": Case(
        "host namespaces (hostNetwork=true, hostPID=true, hostIPC=true)", 0, 0,
        spec={"hostNetwork": True, "hostPID": True, "hostIPC": True},
    ),
    "no host namespace": Case(spec={"hostNetwork": False, "hostPID": False, "hostIPC": False}),
    "privileged": Case(
        'privileged (container "c" must not set securityContext.privileged=true),'
        ' allowPrivilegeEscalation != false (container "c" must set'
        " securityContext.allowPrivilegeEscalation=false)", 0, 0,
        container={"privileged": True, "allowPrivilegeEscalation": True},
    ),
    "not privileged": Case(container={"privileged": False}),
    "a host port": Case(
        'hostPort (container "c" uses hostPorts 20, 3)', 0, 0,
        fields={"ports": [
            {"containerPort": 1, "hostPort": 3}, {"containerPort": 2, "hostPort": 20},
        ]},
    ),
    "host port 0": Case(fields={"ports": [{"containerPort": 1, "hostPort": 0}]}),
    "a capability": Case(
        'unrestricted capabilities (container "c" must not include "NET_RAW" in'
        " securityContext.capabilities.add)", 0, 0,
        container={"capabilities": {"drop": ["ALL"], "add": ["NET_RAW"]}},
    ),
    "a default capability": Case(
        'unrestricted capabilities (container "c" must not include "CHOWN", "KILL" in'
        " securityContext.capabilities.add)", NEVER, 22,
        container={"capabilities": {"drop": ["ALL"], "add": ["KILL", "CHOWN"]}},
    ),
    "ports below 1024": Case(
        container={"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}
    ),
    "capabilities kept": Case(
        'unrestricted capabilities (container "c" must set securityContext.capabilities.drop='
        '["ALL"])', NEVER, 22, container={"capabilities": {"drop": ["NET_RAW"]}},
    ),
    "capabilities kept and added": Case(
        'unrestricted capabilities (container "c" must set securityContext.capabilities.drop='
        '["ALL"]; container "c" must not include "SYS_ADMIN" in securityContext.capabilities.add)',
        0, 0, container={"capabilities": {"add": ["SYS_ADMIN"]}},
    ),
    "escalation": Case(
        'allowPrivilegeEscalation != false (container "c" must set'
        " securityContext.allowPrivilegeEscalation=false)", NEVER, 8,
        container={"allowPrivilegeEscalation": True},
    ),
    "escalation by default": Case(
        'allowPrivilegeEscalation != false (container "c" must set'
        " securityContext.allowPrivilegeEscalation=false)", NEVER, 8,
        container={"allowPrivilegeEscalation": None},
    ),
    "escalation on Windows": Case(
        'allowPrivilegeEscalation != false (container "c" must set'
        " securityContext.allowPrivilegeEscalation=false)", NEVER, 8, restricted_until=25,
        container={"allowPrivilegeEscalation": None}, spec={"os": _WINDOWS},
    ),
    "capabilities on Windows": Case(
        "", NEVER, 22, restricted_until=25, container={"capabilities": None}, spec={"os": _WINDOWS},
    ),
    "no seccomp on Windows": Case(
        "", NEVER, 19, restricted_until=25, pod={"seccompProfile": None}, spec={"os": _WINDOWS},
    ),
    "root by default": Case(
        'runAsNonRoot != true (pod or containers "i", "c" must set'
        " securityContext.runAsNonRoot=true)", NEVER, 0, pod={"runAsNonRoot": None},
    ),
    "root by a container": Case(
        'runAsNonRoot != true (container "c" must not set securityContext.runAsNonRoot=false)',
        NEVER, 0, container={"runAsNonRoot": False},
    ),
    "root by all": Case(
        'runAsNonRoot != true (pod and container "c" must not set'
        " securityContext.runAsNonRoot=false)", NEVER, 0,
        pod={"runAsNonRoot": False}, container={"runAsNonRoot": False},
    ),
    "root among own users": Case(
        "", NEVER, 0, restricted_until=35, pod={"runAsNonRoot": False}, spec={"hostUsers": False},
    ),
    "user 0": Case(
        'runAsUser=0 (pod and container "c" must not set runAsUser=0)', NEVER, 23,
        pod={"runAsUser": 0}, container={"runAsUser": 0},
    ),
    "user 0 among own users": Case(
        "", NEVER, 23, restricted_until=35, pod={"runAsUser": 0}, spec={"hostUsers": False},
    ),
    "user 0 among users said otherwise": Case(
        "runAsUser=0 (pod must not set runAsUser=0)", NEVER, 23,
        pod={"runAsUser": 0}, spec={"hostUsers": "false"},
    ),
    "user 1": Case(pod={"runAsUser": 1}),
    "no seccomp": Case(
        'seccompProfile (container "c" must not set securityContext.seccompProfile.type to'
        ' "Unconfined")', 19, 19, container={"seccompProfile": {"type": "Unconfined"}},
    ),
    "no seccomp for the pod": Case(
        "seccompProfile (pod must not set securityContext.seccompProfile.type to"
        ' "Unconfined")', 19, 19, pod={"seccompProfile": {"type": "Unconfined"}},
    ),
    "seccomp by default": Case(
        'seccompProfile (pod or containers "i", "c" must set securityContext.seccompProfile.type'
        ' to "RuntimeDefault" or "Localhost")', NEVER, 19, pod={"seccompProfile": None},
    ),
    "a local seccomp profile": Case(container={"seccompProfile": {"type": "Localhost"}}),
    "an annotated seccomp profile": Case(
        f'seccompProfile (forbidden annotations {_SECCOMP_C}="unconfined", {_SECCOMP}="u")', 0, 0,
        19, annotations={_SECCOMP: "u", _SECCOMP_C: "unconfined"},
    ),
    "a good annotated seccomp profile": Case(
        annotations={_SECCOMP: "docker/default", _SECCOMP_C: "localhost/a"}
    ),
    "no AppArmor": Case(
        'forbidden AppArmor profiles (pod and container "c" and annotation must not set AppArmor'
        f' profile type to "None", "Unconfined", "{_APPARMOR}="unconfined"")', 0, 0,
        pod={"appArmorProfile": {"type": "Unconfined"}}, annotations={_APPARMOR: "unconfined"},
        container={"appArmorProfile": "None"},
    ),
    "AppArmor": Case(
        pod={"appArmorProfile": {"type": "RuntimeDefault"}},
        container={"appArmorProfile": {"type": "Localhost"}}, annotations={_APPARMOR: ""},
    ),
    "SELinux": Case(
        'seLinuxOptions (pod and container "c" set forbidden securityContext.seLinuxOptions: types'
        ' "bar", "foo"; user may not be set; role may not be set)', 0, 0,
        pod={"seLinuxOptions": {"type": "foo", "user": "u"}},
        container={"seLinuxOptions": {"type": "bar", "role": "r"}},
    ),
    "an SELinux user": Case(
        "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: user may not be set)",
        0, 0, pod={"seLinuxOptions": {"user": "u"}},
    ),
    "an SELinux type of engines": Case(
        "", 0, 0, 31, pod={"seLinuxOptions": {"type": "container_engine_t"}}
    ),
    "a free SELinux type": Case(pod={"seLinuxOptions": {"type": "container_t", "level": "s0"}}),
    "/proc unmasked": Case(
        'procMount (container "c" must not set securityContext.procMount to "Unmasked")', 0, 0,
        container={"procMount": "Unmasked"},
    ),
    "/proc unmasked oddly": Case(
        "procMount (container \"c\" must not set securityContext.procMount to \"['x']\")", 0, 0,
        container={"procMount": ["x"]},
    ),
    "/proc as usual": Case(container={"procMount": "Default"}),
    "a process of the host": Case(
        'hostProcess (pod and container "c" must not set securityContext.windowsOptions.hostProcess'
        "=true)", 0, 0, pod={"windowsOptions": {"hostProcess": True}},
        container={"windowsOptions": {"hostProcess": True}},
    ),
    "no process of the host": Case(pod={"windowsOptions": {"hostProcess": False}}),
    "a liveness probe": _probe(livenessProbe={"httpGet": _AT}),
    "a readiness probe": _probe(readinessProbe={"tcpSocket": _AT}),
    "a startup probe": _probe(startupProbe={"httpGet": _AT}),
    "a hook at the start": _probe(lifecycle={"postStart": {"tcpSocket": _AT}}),
    "a hook at the end": _probe(lifecycle={"preStop": {"httpGet": _AT}}),
    "a probe of the pod": Case(fields={"livenessProbe": {"httpGet": {"port": 80, "host": ""}}}),
    "an unsafe sysctl": _sysctl("kernel.msgmax", NEVER),
    "a sysctl written otherwise": _sysctl("net/ipv4/tcp_syncookies", NEVER),
    "a safe sysctl": Case(pod={"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]}),
    "a sysctl safe since 1.27": _sysctl("net.ipv4.ip_local_reserved_ports", 27),
    "a sysctl safe since 1.29": _sysctl("net.ipv4.tcp_fin_timeout", 29),
    "a sysctl safe since 1.32": _sysctl("net.ipv4.tcp_rmem", 32),
    "a sysctl safe since 1.37": _sysctl("net.ipv4.tcp_notsent_lowat", 37),
    "an unknown volume": Case(
        'restricted volume types (volume "v" uses restricted volume type "unknown")', NEVER, 0,
        spec={"volumes": [{"name": "v", "new": {}}]},
    ),
    "a volume of two types": Case(
        'restricted volume types (volume "v" uses restricted volume type "hostPath")', 0, 0,
        spec={"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]},
    ),
    **{f"a volume {source}": _volume(source) for source in _VOLUMES},
    **{
        f"a volume {source}": Case(spec={"volumes": [_made(source)]}) for source in _FREE_VOLUMES
    },
    "/proc unmasked among own users": Case(
        'procMount (container "c" must not set securityContext.procMount to "Unmasked")', 0, 0, 35,
        container={"procMount": "Unmasked"}, spec={"hostUsers": False}, restricted_until=NEVER,
    ),
}  # fmt: skip
