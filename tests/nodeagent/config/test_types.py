"""Fields that must fit each other or the kernel."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from nodeagent.config.types import CheckpointPolicy, NodeAgentConfiguration, PsiTrigger


def config_with(**trigger: Any) -> NodeAgentConfiguration:
    data = {"resource": "io", "threshold": "150ms", **trigger}
    return NodeAgentConfiguration.model_validate({"psiTriggers": [data]})


def test_a_trigger_watches_the_node_for_two_seconds_by_default() -> None:
    (trigger,) = config_with().psiTriggers
    assert trigger == PsiTrigger.model_validate(
        {"resource": "io", "level": "some", "scope": "node", "threshold": "150ms", "window": "2s"}
    )


@pytest.mark.parametrize(
    ("trigger", "said"),
    [
        ({"threshold": "0s"}, "threshold must be at least 1us"),
        ({"threshold": "999ns"}, "threshold must be at least 1us"),
        ({"threshold": "3s"}, "not above the window"),
        ({"window": "100ms", "threshold": "50ms"}, "between 500ms and 10s"),
        ({"window": "1m"}, "between 500ms and 10s"),
        ({"resource": "disk"}, "'cpu', 'memory' or 'io'"),
        ({"scope": "cluster"}, "'node', 'pod' or 'container'"),
        ({"colour": "red"}, "Extra inputs"),
    ],
)
def test_a_trigger_the_kernel_would_not_take_is_refused(trigger: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        config_with(**trigger)


# nodeagent.md §11.1
DEFAULTS = {
    "authentication": {
        "x509": {"clientCAFile": ""},
        "webhook": {"enabled": True, "cacheTTL": "2m0s"},
        "anonymous": {"enabled": False},
    },
    "authorization": {
        "mode": "Webhook",
        "webhook": {"cacheAuthorizedTTL": "5m0s", "cacheUnauthorizedTTL": "30s"},
    },
    "readOnlyPort": 0,
    "tlsMinVersion": "",
    "tlsCipherSuites": [],
}


def test_access_is_closed_by_default() -> None:
    shown = NodeAgentConfiguration().model_dump(mode="json")
    assert {field: shown[field] for field in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"authorization": {"mode": ""}}, "'AlwaysAllow' or 'Webhook'"),
        ({"authorization": {"mode": "RBAC"}}, "'AlwaysAllow' or 'Webhook'"),
        ({"authentication": {"webhook": {"cacheTTL": "-1s"}}}, "must not be negative"),
        ({"authentication": {"webhook": {"cacheTTL": 5}}}, "is not a duration"),
        ({"authentication": {"anonymous": {"enabled": "yes"}}}, "valid boolean"),
        ({"tlsMinVersion": "VersionTLS11"}, "'VersionTLS12' or 'VersionTLS13'"),
        ({"readOnlyPort": 70000}, "less than or equal to 65535"),
        ({"address": "localhost"}, "'localhost' is not an IP address"),
        ({"healthzBindAddress": ""}, "'' is not an IP address"),
        ({"healthzPort": 10250}, "healthzPort 10250 is the same as port"),
        ({"staticPodURL": "ftp://host/pods"}, "not an address of the form http://HOST/PATH"),
        ({"staticPodURL": "http://"}, "not an address of the form http://HOST/PATH"),
        ({"staticPodURL": "http://host:99999/"}, "not an address of the form http://HOST/PATH"),
        ({"staticPodURL": "http://host:0/"}, "not an address of the form http://HOST/PATH"),
        ({"podAPIServer": "http://host:80"}, "not an address of the form https://HOST:PORT"),
        ({"podAPIServer": "https://host/below"}, "not an address of the form https://HOST:PORT"),
        ({"podAPIServer": "https://u:p@host"}, "not an address of the form https://HOST:PORT"),
    ],
)
def test_access_that_cannot_be_meant_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        NodeAgentConfiguration.model_validate(fields)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"enforceNodeAllocatable": ["some"]}, "'pods', 'none', 'system-reserved'"),
        ({"enforceNodeAllocatable": ["system-reserved"]}, "system-reserved needs systemReserved "),
        (
            {"enforceNodeAllocatable": ["kube-reserved"], "nodeagentReserved": {"cpu": "1"}},
            "kube-reserved needs nodeagentReservedCgroup",
        ),
        (
            {"enforceNodeAllocatable": ["kube-reserved", "kube-reserved-compressible"]},
            "has both kube-reserved and its compressible",
        ),
        ({"enforceNodeAllocatable": ["pods", "pods"]}, "enforceNodeAllocatable has a part twice"),
        ({"enforceNodeAllocatable": ["none", "pods"]}, "or none beside another"),
        ({"registerWithTaints": [{"key": "", "effect": "NoSchedule"}]}, "name part must be non-"),
        ({"registerWithTaints": [{"key": "a b", "effect": "NoSchedule"}]}, "'a b': name part"),
        (
            {"registerWithTaints": [{"key": "a", "value": "b c", "effect": "NoSchedule"}]},
            "'b c': a valid label",
        ),
        (
            {"registerWithTaints": [{"key": "a", "effect": "NoExecute"}] * 2},
            "registerWithTaints has a:NoExecute more than once",
        ),
        ({"nodeProvider": {"zone": "eu west"}}, "'eu west': a valid label"),
        ({"staticPodURLHeader": {"X Token": ["x"]}}, "'X Token' is not the name of an HTTP header"),
        ({"staticPodURLHeader": {"": ["x"]}}, "'' is not the name of an HTTP header"),
        ({"containerLogMonitorInterval": "2s"}, "containerLogMonitorInterval must be at least 3s"),
        ({"containerRuntimeEndpoint": "tcp://host:1"}, "'tcp://host:1' is not a unix socket"),
        ({"podLogsDir": "/var/log/../pods"}, "not an absolute, normalized path"),
        ({"podLogsDir": ""}, "not an absolute, normalized path"),
        ({"cgroupRoot": "pods"}, "not an absolute, normalized path"),
        ({"systemCgroups": "system.slice"}, "not an absolute, normalized path"),
        ({"systemCgroups": "/"}, "the root cgroup, which holds the whole machine"),
        ({"maxParallelImagePulls": 2}, "maxParallelImagePulls above 1 needs serializeImagePulls"),
        ({"maxParallelImagePulls": 0, "serializeImagePulls": False}, "greater than or equal to 1"),
        ({"registryPullQPS": -1}, "greater than or equal to 0"),
        ({"allowedUnsafeSysctls": ["kernel.*"]}, r"'kernel\.\*' is not known"),
        ({"allowedUnsafeSysctls": ["vm.swappiness"]}, "'vm.swappiness' is not known to be of a"),
        ({"allowedUnsafeSysctls": ["net.*.a"]}, r"'net.\*.a': must have at most"),
        ({"allowedUnsafeSysctls": ["*"]}, r"'\*': must have at most"),
        ({"registryBurst": -1}, "greater than or equal to 0"),
    ],
)
def test_values_that_would_fail_later_are_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        NodeAgentConfiguration.model_validate(fields)


@pytest.mark.parametrize("endpoint", ["", "/run/cri.sock", "unix:///run/cri.sock"])
def test_a_runtime_is_named_by_its_socket(endpoint: str) -> None:
    config = NodeAgentConfiguration.model_validate({"containerRuntimeEndpoint": endpoint})
    assert config.containerRuntimeEndpoint == endpoint


@pytest.mark.parametrize(
    "address",
    ["http://me:hun?ter2@host/", "http://me:hun#ter2@host/", "http://me:hunter2@h\u2100/"],
)
def test_the_refusal_of_an_address_does_not_say_its_password(address: str) -> None:
    with pytest.raises(ValidationError) as refused:
        NodeAgentConfiguration.model_validate({"staticPodURL": address})
    (error,) = refused.value.errors()
    form = "http://HOST/PATH or https://HOST/PATH"
    assert error["msg"] == f"Value error, not an address of the form {form}"


@pytest.mark.parametrize(
    "fields",
    [
        {"imageMinimumGCAge": "-2m"},
        {"shutdownGracePeriod": "-1s"},
        {"evictionPressureTransitionPeriod": "-1ns"},
        {"checkpoint": {"maxAge": "-1h"}},
    ],
)
def test_no_time_is_negative(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"'-.*' must not be negative"):
        NodeAgentConfiguration.model_validate(fields)


def encrypted_for(recipient: str) -> CheckpointPolicy:
    return CheckpointPolicy.model_validate({"encryption": {"recipients": [recipient]}})


@pytest.mark.parametrize("recipient", ["age1qqq", "ssh-ed25519 AAAA node", "ssh-rsa AAAA"])
def test_a_recipient_is_a_public_key(recipient: str) -> None:
    assert encrypted_for(recipient).encryption.recipients == [recipient]


@pytest.mark.parametrize("recipient", ["", "AGE-SECRET-KEY-1QQQQQQ", "me@example.org"])
def test_an_invalid_public_key_is_refused_and_not_repeated(recipient: str) -> None:
    with pytest.raises(ValidationError, match="is not an age public key") as caught:
        encrypted_for(recipient)
    assert "1QQQQQQ" not in str(caught.value.errors()[0]["msg"])
