"""Every field about isolation is honoured or refused, by tables over all fields there are."""

from __future__ import annotations

from typing import Any

import pytest

from orch.wire.podrules import isolation, updates, validation
from orch.wire.records.fields import fields_beyond, shapes_of
from orch.wire.records.isolation import PodSecurityContext, SecurityContext
from orch.wire.records.pods import PodSpec

# A value of each field of a security context that agents apply, or that changes nothing; the fields
# that are refused whatever they say; and values that are refused of the first.
HONOURED_OF_PODS: dict[str, Any] = {
    "runAsUser": 2**31 - 1,
    "runAsGroup": 0,
    "runAsNonRoot": True,
    "fsGroup": 5,
    "fsGroupChangePolicy": "OnRootMismatch",
    "supplementalGroups": [0, 7],
    "supplementalGroupsPolicy": "Strict",
    "seccompProfile": {"type": "Localhost", "localhostProfile": "a/b.json"},
    "appArmorProfile": {"type": "Localhost", "localhostProfile": "loaded"},
    "sysctls": [{"name": "net.ipv4.ip_forward", "value": "1"}],
    "seLinuxChangePolicy": "MountOption",
    "seLinuxOptions": {"level": "s0:c1,c2"},
}
OF_WINDOWS_PODS: dict[str, Any] = {
    "windowsOptions": {"hostProcess": True},
}
HONOURED: dict[str, Any] = {
    "runAsUser": 1000,
    "runAsGroup": 1000,
    "runAsNonRoot": False,
    "privileged": True,
    "allowPrivilegeEscalation": True,
    "readOnlyRootFilesystem": True,
    "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
    "appArmorProfile": {"type": "RuntimeDefault"},
    "procMount": "Default",
    "seLinuxOptions": {"type": "t", "user": "u", "role": "r"},
}
OF_WINDOWS: dict[str, Any] = {
    "windowsOptions": {"runAsUserName": "u"},
}
HONOURED_BY_SPEC: dict[str, Any] = {
    "hostNetwork": True,
    "hostPID": True,
    "hostIPC": True,
    "shareProcessNamespace": True,
    "runtimeClassName": "gvisor",
    "hostUsers": False,
}

OF_POD, OF_CONTAINER = "spec.securityContext", "spec.containers[0].securityContext"
VALUES: list[tuple[str, dict[str, Any], str, str]] = [
    (OF_POD, {"runAsUser": 2**32}, "runAsUser", "must be between 0 and 2147483647, inclusive"),
    (OF_POD, {"runAsUser": -1}, "runAsUser", "must be between 0"),
    (OF_POD, {"supplementalGroups": [1, 2**32]}, "supplementalGroups[1]", "must be between 0"),
    (OF_POD, {"supplementalGroupsPolicy": "strict"}, "supplementalGroupsPolicy", "Unsupported"),
    (OF_POD, {"fsGroupChangePolicy": "Never"}, "fsGroupChangePolicy", "Unsupported"),
    (OF_POD, {"runAsNonroot": True}, "runAsNonroot", "there is no such field"),
    (OF_POD, {"seccompProfile": {}}, "seccompProfile.type", "type is required when seccompProfile"),
    (OF_POD, {"seccompProfile": {"type": "x"}}, "seccompProfile.type", "Unsupported value"),
    (OF_POD, {"sysctls": [{"name": "a", "value": "b", "x": 1}]}, "sysctls[0].x", "no such field"),
    (OF_CONTAINER, {"procMount": "Unmasked"}, "procMount", "`hostUsers` must be false"),
    (OF_CONTAINER, {"procMount": "All"}, "procMount", "Unsupported value"),
    (OF_CONTAINER, {"seLinuxOptions": {"lvl": "s0"}}, "seLinuxOptions.lvl", "no such field"),
    (OF_CONTAINER, {"runAsGroup": 2**40}, "runAsGroup", "must be between 0"),
    (OF_CONTAINER, {"fsGroup": 5}, "fsGroup", "there is no such field"),
    (OF_CONTAINER, {"capabilities": {"Drop": ["ALL"]}}, "capabilities.Drop", "no such field"),
    (
        OF_CONTAINER,
        {"seccompProfile": {"type": "Localhost"}},
        "seccompProfile.localhostProfile",
        "must be set when seccomp type is Localhost",
    ),
    (
        OF_CONTAINER,
        {"seccompProfile": {"type": "RuntimeDefault", "localhostProfile": "a"}},
        "seccompProfile.localhostProfile",
        "can only be set when seccomp type is Localhost",
    ),
    (
        OF_CONTAINER,
        {"seccompProfile": {"type": "Localhost", "localhostProfile": "../a"}},
        "seccompProfile.localhostProfile",
        "must not contain '..'",
    ),
    (
        OF_CONTAINER,
        {"seccompProfile": {"type": "Localhost", "localhostProfile": "/a"}},
        "seccompProfile.localhostProfile",
        "must be a relative path",
    ),
    (
        OF_CONTAINER,
        {"appArmorProfile": {"type": "Unconfined", "localhostProfile": "a"}},
        "appArmorProfile.localhostProfile",
        "can only be set when AppArmor type is Localhost",
    ),
    (
        OF_CONTAINER,
        {"appArmorProfile": {"type": "Localhost", "localhostProfile": " a"}},
        "appArmorProfile.localhostProfile",
        "must not be padded",
    ),
    (
        OF_CONTAINER,
        {"allowPrivilegeEscalation": False, "privileged": True},
        "",
        "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
    ),
    (
        OF_CONTAINER,
        {"allowPrivilegeEscalation": False, "capabilities": {"add": ["CAP_SYS_ADMIN"]}},
        "",
        "CAP_SYS_ADMIN",
    ),
]
SPECS: list[tuple[dict[str, Any], str, str]] = [
    ({"hostUsers": False, "hostIPC": True}, "spec.hostIPC", "when `hostUsers` is false"),
    ({"hostUsers": False, "hostPID": True}, "spec.hostPID", "when `hostUsers` is false"),
    ({"hostUsers": False, "hostNetwork": True}, "spec.hostNetwork", "when `hostUsers` is false"),
    ({"runtimeClassName": "../x"}, "spec.runtimeClassName", "RFC 1123 subdomain"),
    (
        {"shareProcessNamespace": True, "hostPID": True},
        "spec.securityContext.shareProcessNamespace",
        "ShareProcessNamespace and HostPID cannot both be enabled",
    ),
]


NO_SYSCTL = "must have at most 253 characters and match regex"
SYSCTLS: list[tuple[str, dict[str, Any], str]] = [
    ("net.ipv4.tcp_syncookies", {}, ""),
    ("net/ipv4/conf/eth0.1/x", {"hostIPC": True}, ""),
    ("kernel.shm_rmid_forced", {"hostNetwork": True}, ""),
    ("", {}, "Required value"),
    ("i..j", {}, NO_SYSCTL),
    ("-a", {}, NO_SYSCTL),
    ("A", {}, NO_SYSCTL),
    ("a" * 254, {}, NO_SYSCTL),
    ("net.ipv4.tcp_syncookies", {"hostNetwork": True}, "when 'hostNetwork' is true"),
    ("net/ipv4/tcp_syncookies", {"hostNetwork": True}, "when 'hostNetwork' is true"),
    ("kernel.shm_rmid_forced", {"hostIPC": True}, "when 'hostIPC' is true"),
    ("fs.mqueue.msg_max", {"hostIPC": True}, "when 'hostIPC' is true"),
]


@pytest.mark.parametrize(("name", "spec", "text"), SYSCTLS)
def test_a_kernel_parameter_has_a_name_and_a_namespace_of_the_pod(
    name: str, spec: dict[str, Any], text: str
) -> None:
    """K:pkg/apis/core/validation TestValidateSysctls."""
    found = causes({"sysctls": [{"name": name, "value": "1"}]}, **spec)
    assert [path for path, _ in found] == [f"{OF_POD}.sysctls[0].name"] * bool(text)
    assert all(text in message for _, message in found)


def test_a_kernel_parameter_has_one_value() -> None:
    twice = [{"name": "a", "value": value} for value in "12"]
    assert causes({"sysctls": twice}) == [
        (f"{OF_POD}.sysctls[1].name", 'Duplicate value: "a"'),
    ]


def causes(of_pod: Any = None, of_container: Any = None, **spec: Any) -> list[tuple[str, str]]:
    container = {"name": "app", "image": "x", "securityContext": of_container}
    document = {"containers": [container], "securityContext": of_pod, **spec}
    return [(cause.field, cause.message) for cause in validation.spec_causes(document)]


@pytest.mark.parametrize(
    ("model", "honoured", "refused"),
    [
        (PodSecurityContext, HONOURED_OF_PODS, OF_WINDOWS_PODS),
        (SecurityContext, HONOURED, OF_WINDOWS),
    ],
)
def test_the_tables_have_every_field_of_the_reference(
    model: type[PodSecurityContext | SecurityContext],
    honoured: dict[str, Any],
    refused: dict[str, Any],
) -> None:
    known = {*shapes_of(model), *(fields_beyond(model) or ())}
    assert known == {*honoured, *refused}


def test_fields_that_are_honoured_pass() -> None:
    for name, value in HONOURED_OF_PODS.items():
        assert causes({name: value}) == [], name
    for name, value in HONOURED.items():
        assert causes(None, {name: value}) == [], name
    for name, value in HONOURED_BY_SPEC.items():
        assert name in {*shapes_of(PodSpec), *(fields_beyond(PodSpec) or ())}
        assert causes(**{name: value}) == [], name


def test_fields_of_other_systems_are_refused_where_a_pod_says_that_it_is_for_linux() -> None:
    linux, refusal = {"os": {"name": "linux"}}, "windows options cannot be set for a linux pod"
    for name, value in OF_WINDOWS_PODS.items():
        assert causes({name: value}) == []
        assert causes({name: value}, **linux) == [(f"{OF_POD}.{name}", f"Forbidden: {refusal}")]
    for name, value in OF_WINDOWS.items():
        assert causes(None, {name: value}) == []
        [(path, text)] = causes(None, {name: value}, **linux)
        assert (path, text) == (f"{OF_CONTAINER}.{name}", f"Forbidden: {refusal}")


@pytest.mark.parametrize(("place", "context", "field", "text"), VALUES)
def test_a_value_that_cannot_be_applied_is_refused(
    place: str, context: dict[str, Any], field: str, text: str
) -> None:
    contexts = (context, None) if place == OF_POD else (None, context)
    [(path, message)] = causes(*contexts)
    assert path == (f"{place}.{field}" if field else place)
    assert text in message


@pytest.mark.parametrize(("spec", "field", "text"), SPECS)
def test_a_pod_that_cannot_be_isolated_so_is_refused(
    spec: dict[str, Any], field: str, text: str
) -> None:
    [(path, message)] = causes(**spec)
    assert path == field
    assert text in message


def test_containers_of_every_list_are_checked() -> None:
    bad = {"image": "x", "securityContext": {"procMount": "Unmasked"}}
    lists = {
        "initContainers": [{"name": "i", **bad}],
        "ephemeralContainers": [{"name": "e", **bad}],
    }
    assert [path for path, _ in causes(**lists)] == [
        "spec.initContainers[0].securityContext.procMount",
        "spec.ephemeralContainers[0].securityContext.procMount",
    ]
    old = {"containers": [{"name": "app", "image": "x"}]}
    added = {**old, "ephemeralContainers": lists["ephemeralContainers"]}
    [cause] = updates.ephemeral_causes(added, old)
    assert cause.field == "spec.ephemeralContainers[0].securityContext.procMount"


def test_empty_values_ask_for_nothing() -> None:
    assert causes({"seLinuxOptions": {}, "windowsOptions": None}, {"procMount": ""}) == []


def test_an_apparmor_annotation_stays_as_it_was_created() -> None:
    app = "container.apparmor.security.beta.kubernetes.io/app"
    confined, free = {app: "runtime/default", "note": "a"}, {app: "unconfined", "note": "a"}
    for new, old, text in (
        (free, confined, "may not remove or update AppArmor annotations"),
        ({"note": "a"}, confined, "may not remove or update AppArmor annotations"),
        (confined, {"note": "a"}, "may not add AppArmor annotations"),
    ):
        [cause] = isolation.annotation_causes(new, old)
        assert (cause.field, cause.message) == (
            f"metadata.annotations[{app}]", f"Forbidden: {text}",
        )  # fmt: skip
    assert list(isolation.annotation_causes({**confined, "note": "b"}, confined)) == []
