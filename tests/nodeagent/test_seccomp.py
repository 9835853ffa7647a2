"""Tables of the effective profile.

Rows are the reference agent's (kuberuntime TestGetSeccompProfile and its seccompDefault twin), then
the rules of spec.md "Seccomp profile selection" that go beyond them.
"""

from typing import Any

import pytest

from nodeagent.runtime.isolation import SeccompKind, SeccompSetting
from nodeagent.seccomp import CONFIG_ERROR, SeccompError, resolve
from orch.wire.records.pods import Container, Pod

ROOT = "/var/lib/nodeagent/seccomp"
UNCONFINED = SeccompSetting(SeccompKind.UNCONFINED)
RUNTIME_DEFAULT = SeccompSetting(SeccompKind.RUNTIME_DEFAULT)
Profile = dict[str, str] | None


def localhost(name: str) -> SeccompSetting:
    return SeccompSetting(SeccompKind.LOCALHOST, f"{ROOT}/{name}")


def effective(
    pod_profile: Profile,
    container_profile: Profile,
    *,
    seccomp_default: bool = False,
    privileged: bool | None = None,
) -> SeccompSetting:
    context: dict[str, Any] = {"privileged": privileged}
    if container_profile:
        context["seccompProfile"] = container_profile
    container = Container.from_wire({"name": "app", "securityContext": context})
    spec: dict[str, Any] = {"containers": [container.to_wire()]}
    if pod_profile:
        spec["securityContext"] = {"seccompProfile": pod_profile}
    pod = Pod.from_wire({"metadata": {"name": "web"}, "spec": spec})
    found = resolve(pod, container, seccomp_default=seccomp_default, seccomp_root=ROOT)
    return found.setting


def profile(kind: str, name: str | None = None) -> Profile:
    return {"type": kind} if name is None else {"type": kind, "localhostProfile": name}


SAME_WITH_BOTH_DEFAULTS = [
    (profile("Unconfined"), None, UNCONFINED),
    (None, profile("Unconfined"), UNCONFINED),
    (profile("RuntimeDefault"), None, RUNTIME_DEFAULT),
    (None, profile("RuntimeDefault"), RUNTIME_DEFAULT),
    (profile("Localhost", "filename"), None, localhost("filename")),
    (None, profile("Localhost", "filename2"), localhost("filename2")),
    (profile("Unconfined"), profile("RuntimeDefault"), RUNTIME_DEFAULT),
    (profile("RuntimeDefault"), profile("Unconfined"), UNCONFINED),
    (
        profile("Localhost", "field-pod-profile.json"),
        profile("Localhost", "field-cont-profile.json"),
        localhost("field-cont-profile.json"),
    ),
    (profile("Localhost", "profiles/audit.json"), None, localhost("profiles/audit.json")),
    (profile("Localhost", "./a//b.json"), None, localhost("a/b.json")),
    (profile("Localhost", "..a/b..json"), None, localhost("..a/b..json")),
    # The pod's profile is wrong, but the container's own one applies.
    (profile("Localhost", "/etc/passwd"), profile("RuntimeDefault"), RUNTIME_DEFAULT),
]


@pytest.mark.parametrize("seccomp_default", [False, True])
@pytest.mark.parametrize(("of_pod", "of_container", "expected"), SAME_WITH_BOTH_DEFAULTS)
def test_the_containers_profile_comes_before_the_pods(
    of_pod: Profile, of_container: Profile, expected: SeccompSetting, seccomp_default: bool
) -> None:
    assert effective(of_pod, of_container, seccomp_default=seccomp_default) == expected


@pytest.mark.parametrize(
    ("seccomp_default", "expected"), [(False, UNCONFINED), (True, RUNTIME_DEFAULT)]
)
def test_without_a_profile_the_agents_default_decides(
    seccomp_default: bool, expected: SeccompSetting
) -> None:
    assert effective(None, None, seccomp_default=seccomp_default) == expected


def test_no_security_context_means_no_profile() -> None:
    container = Container(name="app")

    found = resolve(Pod(), container, seccomp_default=True, seccomp_root=ROOT)
    assert found.setting == RUNTIME_DEFAULT


@pytest.mark.parametrize("of_pod", [None, profile("RuntimeDefault"), profile("Localhost", "a")])
@pytest.mark.parametrize(
    "of_container",
    [None, profile("RuntimeDefault"), profile("Localhost", "a"), profile("Localhost")],
)
def test_a_privileged_container_is_never_confined(of_pod: Profile, of_container: Profile) -> None:
    setting = effective(of_pod, of_container, seccomp_default=True, privileged=True)

    assert setting == UNCONFINED


def test_privileged_set_to_false_changes_nothing() -> None:
    assert effective(profile("RuntimeDefault"), None, privileged=False) == RUNTIME_DEFAULT


WRONG = [
    (profile("Localhost"), "localhostProfile must be set if seccompProfile type is Localhost."),
    (profile("Localhost", ""), "localhostProfile must be set if seccompProfile type is Localhost."),
    (
        profile("Localhost", "/etc/a.json"),
        "localhostProfile '/etc/a.json' must be a relative path",
    ),
    (profile("Localhost", ".."), "localhostProfile '..' must not contain '..'"),
    (profile("Localhost", "../a.json"), "localhostProfile '../a.json' must not contain '..'"),
    (profile("Localhost", "a/../../b"), "localhostProfile 'a/../../b' must not contain '..'"),
    (profile("Localhost", "a\0b"), "localhostProfile 'a\\x00b' must not contain a NUL byte"),
    (
        profile("runtimedefault"),
        "seccompProfile type 'runtimedefault' is unknown; "
        "use RuntimeDefault, Unconfined or Localhost",
    ),
]


@pytest.mark.parametrize("seccomp_default", [False, True])
@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_a_profile_that_is_not_well_formed_is_an_error_at_either_level(
    wrong: Profile, message: str, seccomp_default: bool
) -> None:
    own = "securityContext.seccompProfile"
    for of_pod, of_container, field in (
        (wrong, None, f"spec.{own}"),
        (None, wrong, f"spec.containers[0].{own}"),
    ):
        with pytest.raises(SeccompError) as caught:
            effective(of_pod, of_container, seccomp_default=seccomp_default)
        assert caught.value.reason == CONFIG_ERROR
        assert caught.value.message == str(caught.value) == f"{message} ({field})"
