"""Checks before an agent makes anything, by tables of the reference's texts."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.pods.actions import StartContainer
from nodeagent.pods.spec import isolation, spec
from nodeagent.pods.spec.env import SpecError
from nodeagent.pods.spec.spec import ContainerContext, PodSettings
from nodeagent.runtime.base import ContainerSpec, Image
from nodeagent.runtime.isolation import (
    RuntimeFeatures,
    SeccompKind,
    SeccompSetting,
    SELinuxLabel,
)
from orch.wire.records.pods import Pod
from tests.fakes.pods import UID, container_data, pod

NONROOT = {"runAsNonRoot": True}
SHOWN = f'(pod: "web_default({UID})", container: app)'
BETA = "container.apparmor.security.beta.kubernetes.io/app"
LOADED = SeccompSetting(SeccompKind.LOCALHOST, "loaded")


def one(own: dict[str, Any] | None = None, **fields: Any) -> Pod:
    return pod(container_data("app", securityContext=own), **fields)


@pytest.mark.parametrize(
    ("image", "text"),
    [
        (None, "container has runAsNonRoot and image will run as root"),
        (Image("sha256:1"), "container has runAsNonRoot and image will run as root"),
        (Image("sha256:1", uid=0), "container has runAsNonRoot and image will run as root"),
        (Image("sha256:1", username="web"), "image has non-numeric user (web), cannot verify user"),
        (Image("sha256:1", uid=2**32), "has user 4294967296, which is not between 1 and"),
        (Image("sha256:1", uid=-1), "has user -1, which is not between 1 and"),
    ],
)
def test_an_image_that_may_run_as_root_is_refused(image: Image | None, text: str) -> None:
    wanted = one(securityContext=NONROOT)
    with pytest.raises(SpecError) as refused:
        isolation.require_image_user(wanted, wanted.spec.containers[0], image)
    assert text in str(refused.value)
    assert str(refused.value).endswith(f"; set runAsUser {SHOWN}")


def test_an_image_of_another_user_is_not() -> None:
    wanted = one(securityContext=NONROOT)
    isolation.require_image_user(wanted, wanted.spec.containers[0], Image("sha256:1", uid=1))


@pytest.mark.parametrize(
    ("of_pod", "own", "expected"),
    [
        ({}, {}, False),
        (NONROOT, {}, True),
        ({}, NONROOT, True),
        (NONROOT, {"runAsNonRoot": False}, False),
        ({"runAsUser": 5}, NONROOT, False),
        (NONROOT, {"runAsUser": 5}, False),
        ({"runAsUser": 0}, {}, False),
        ({**NONROOT, "runAsUser": 0}, {}, None),
        ({"runAsUser": 5}, {**NONROOT, "runAsUser": 0}, None),
    ],
)
def test_whether_the_image_decides(
    of_pod: dict[str, Any], own: dict[str, Any], expected: bool | None
) -> None:
    wanted = one(own, securityContext=of_pod)
    if expected is None:
        text = "container's runAsUser breaks non-root policy"
        with pytest.raises(SpecError) as refused:
            isolation.require_user(wanted, wanted.spec.containers[0])
        assert str(refused.value) == f"{text} {SHOWN}"
    else:
        assert isolation.require_user(wanted, wanted.spec.containers[0]) is expected


def test_what_the_api_server_refuses_an_agent_refuses_too() -> None:
    with pytest.raises(SpecError, match=r"^spec\.hostPID: Forbidden: when `hostUsers` is false"):
        isolation.require_supported(one(hostUsers=False, hostPID=True))
    wanted = one({"procMount": "Unmasked"})
    with pytest.raises(SpecError, match=r"^spec\.containers\[0\]\.securityContext\.procMount: "):
        isolation.require_supported_container(wanted, wanted.spec.containers[0])
    isolation.require_supported(wanted)
    own_users = one({"procMount": "Unmasked"}, hostUsers=False)
    isolation.require_supported_container(own_users, own_users.spec.containers[0])


LEVEL = {"level": "s0:c1,c2"}


@pytest.mark.parametrize(
    ("of_pod", "own", "in_sandbox", "in_container"),
    [
        (None, None, None, None),
        (LEVEL, None, SELinuxLabel(level="s0:c1,c2"), SELinuxLabel(level="s0:c1,c2")),
        (None, {"type": "t"}, None, SELinuxLabel(type="t")),
        (
            LEVEL,
            {"user": "u", "role": "r", "type": "t"},
            SELinuxLabel(level="s0:c1,c2"),
            SELinuxLabel("u", "r", "t"),
        ),
    ],
)
def test_selinux_options_are_passed_on_and_a_container_s_replace_the_pod_s(
    of_pod: Any, own: Any, in_sandbox: SELinuxLabel | None, in_container: SELinuxLabel | None
) -> None:
    wanted = one({"seLinuxOptions": own}, securityContext={"seLinuxOptions": of_pod})
    settings = PodSettings("node1", "/agent", "/logs")
    assert spec.sandbox_spec(wanted, settings, attempt=0).selinux == in_sandbox
    assert made(wanted, enabled=False).selinux == in_container


FEATURES = RuntimeFeatures(frozenset({"", "runc"}), strict_groups=False)
RECURSIVE = {"name": "v", "mountPath": "/v", "readOnly": True, "recursiveReadOnly": "Enabled"}
STRICT = {"supplementalGroupsPolicy": "Strict"}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"runtimeClassName": "gvisor"}, "spec.runtimeClassName: the runtime has no handler"),
        ({"hostUsers": False}, "can't set `spec.hostUsers: false`, runtime does not support user"),
        (
            {"hostUsers": False, "runtimeClassName": "runc"},
            "can't set `spec.hostUsers: false`, RuntimeClass handler 'runc' does not support user",
        ),
        ({"securityContext": STRICT}, "spec.securityContext.supplementalGroupsPolicy: "),
        ({"initContainers": [{"name": "i", "volumeMounts": [RECURSIVE]}]}, "volumeMounts.recurs"),
    ],
)
def test_a_pod_needs_what_the_runtime_has(fields: dict[str, Any], text: str) -> None:
    wanted = one(**fields)
    handler = wanted.spec.runtimeClassName or ""  # the class has the name of its handler
    assert isolation.needs_features(wanted)
    with pytest.raises(SpecError) as refused:
        isolation.require_features(wanted, handler, FEATURES)
    assert str(refused.value).startswith(text)
    known = frozenset({"", "gvisor", "runc"})
    isolation.require_features(wanted, handler, RuntimeFeatures(known, True, known, known))
    assert not isolation.needs_features(one(securityContext={"supplementalGroupsPolicy": "Merge"}))


def made(wanted: Pod, *, enabled: bool) -> ContainerSpec:
    settings = PodSettings("node1", "/agent", "/logs", apparmor=enabled)
    start = StartContainer("app", attempt=0, backoff_step=0)
    return spec.container_spec(
        wanted, wanted.spec.containers[0], start, settings, ContainerContext()
    )


LISTED = "docker-default (enforce)\nloaded (complain)\nwith space (kill)\n"


@pytest.mark.parametrize(
    ("name", "listed", "fits"),
    [
        ("loaded", LISTED, True),
        ("with space", LISTED, True),
        ("absent", LISTED, False),
        ("load", LISTED, False),
        ("absent", "", True),  # the kernel does not say
    ],
)
def test_a_profile_that_the_kernel_has_not_loaded_is_refused(
    name: str, listed: str, fits: bool
) -> None:
    setting = SeccompSetting(SeccompKind.LOCALHOST, name)
    if fits:
        isolation.require_loaded(setting, listed)
        return
    with pytest.raises(SpecError, match=f'Cannot enforce AppArmor: profile "{name}" is not loaded'):
        isolation.require_loaded(setting, listed)
    isolation.require_loaded(SeccompSetting(SeccompKind.RUNTIME_DEFAULT), listed)


APPARMOR: list[tuple[dict[str, Any], Any, Any]] = [
    ({}, None, None),
    ({"pod": {"type": "Unconfined"}}, "Unconfined", None),
    ({"pod": {"type": "RuntimeDefault"}}, "RuntimeDefault", "refused"),
    ({"own": {"type": "Localhost", "localhostProfile": "loaded"}}, LOADED, "refused"),
    ({"own": {"type": "Unconfined"}, "annotation": "localhost/x"}, "Unconfined", None),
    ({"annotation": "localhost/loaded", "pod": {"type": "RuntimeDefault"}}, LOADED, "refused"),
    ({"annotation": "runtime/default"}, "RuntimeDefault", "refused"),
    ({"annotation": "unconfined"}, "Unconfined", None),
    ({"annotation": "no such"}, "refused", "refused"),
]


@pytest.mark.parametrize(("asked", "expected", "without"), APPARMOR)
def test_an_apparmor_profile_is_passed_on_or_the_container_is_refused(
    asked: dict[str, Any], expected: Any, without: Any
) -> None:
    """`without`: the outcome on a host without AppArmor."""
    wanted = one(
        {"appArmorProfile": asked.get("own")},
        securityContext={"appArmorProfile": asked.get("pod")},
        metadata={"annotations": {BETA: asked["annotation"]} if "annotation" in asked else {}},
    )
    for enabled, outcome in ((True, expected), (False, without)):
        if outcome == "refused":
            with pytest.raises(SpecError, match=r"AppArmor is not enabled|is not one of"):
                made(wanted, enabled=enabled)
            continue
        setting = made(wanted, enabled=enabled).apparmor
        if enabled:
            assert setting == outcome or (setting and setting.kind.value == outcome)
        else:
            assert setting is None or setting.kind is SeccompKind.UNCONFINED


def sandbox(**metadata: Any) -> tuple[dict[str, str], dict[str, str]]:
    settings = PodSettings("node1", "/agent", "/logs")
    made = spec.sandbox_spec(pod(metadata=metadata), settings, attempt=0)
    return dict(made.labels), dict(made.annotations)


def test_small_labels_and_annotations_reach_the_runtime_and_its_plugins() -> None:
    labels, annotations = sandbox(
        labels={"app": "web"}, annotations={"kubernetes.io/egress-bandwidth": "1M"}
    )
    assert labels["app"] == "web"
    assert annotations["kubernetes.io/egress-bandwidth"] == "1M"


def test_large_ones_do_not_and_the_agents_own_always_do() -> None:
    many = {f"k{index}": "x" * 63 for index in range(40_000)}
    labels, annotations = sandbox(
        labels=many, annotations={**many, "orch.io/config.source": "api", "long": "x" * 5000}
    )
    assert labels.keys() == {
        "orch.io/pod.name", "orch.io/pod.namespace", "orch.io/pod.uid", "orch.io/node.name",
    }  # fmt: skip
    assert annotations.keys() == {
        "orch.io/config.source", "orch.io/pod.cgroupParent", "orch.io/pod.terminationGracePeriod",
        "orch.io/pod.size",
    }  # fmt: skip
    assert annotations["orch.io/config.source"] == "api"


def test_annotations_that_a_plugin_might_miss_are_refused_and_long_ones_just_left_out() -> None:
    many = {f"k{index:04}": "x" * 63 for index in range(200)}
    with pytest.raises(SpecError, match=r"^metadata\.annotations: .* more than 8192 bytes"):
        isolation.require_supported(pod(metadata={"annotations": many}))
    isolation.require_supported(pod(metadata={"annotations": {"applied": "x" * 200_000}}))
    isolation.require_supported(pod(metadata={"labels": many}))
