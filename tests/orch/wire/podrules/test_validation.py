"""K:pkg/apis/core/validation TestValidatePodSpec, TestValidatePod, TestValidatePodDNSConfig, …."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from orch.wire.errors import Cause
from orch.wire.podrules import isolation, placement, podspec, references
from orch.wire.podrules.validation import creation_causes, spec_causes
from tests.orch.wire.podrules.podtable import (
    CONTAINER,
    assert_refused,
    container,
    refusals,
    spec,
)

SUBDOMAIN = "a lowercase RFC 1123 subdomain must consist of"
NO_ADDRESS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
DEADLINE = "must be between 1 and 2147483647, inclusive"


def dns(**fields: Any) -> dict[str, Any]:
    return {"dnsConfig": fields}


ACCEPTED: list[dict[str, Any]] = [
    {},
    {"restartPolicy": "", "dnsPolicy": "", "preemptionPolicy": None, "nodeName": ""},
    {"restartPolicy": "Never", "dnsPolicy": "Default", "preemptionPolicy": "Never"},
    {"hostname": "web-1", "subdomain": "x", "nodeName": "n.example.com"},
    {"serviceAccountName": "a.b", "priorityClassName": "p", "os": {"name": "linux"}},
    {"activeDeadlineSeconds": 1, "terminationGracePeriodSeconds": 0},
    {"terminationGracePeriodSeconds": -1},
    dns(nameservers=["10.0.0.1", "010.000.0.1", "2001:db8::1"], searches=["a.b.", ".", "_tcp.x"]),
    {"dnsPolicy": "None", **dns(nameservers=["1.1.1.1"], options=[{"name": "ndots"}])},
    dns(searches=["a"] * 32),
    {"hostAliases": [{"ip": "1.2.3.4", "hostnames": ["a.b", "c"]}]},
    {"readinessGates": [{"conditionType": "example.com/ready"}]},
    {"overhead": {"cpu": "1m", "memory": "1Mi"}},
    {"hostnameOverride": "any.name.example"},
]
REFUSED: list[tuple[dict[str, Any], list[str]]] = [
    (
        {"restartPolicy": "Sometimes"},
        [
            'restartPolicy: Unsupported value: "Sometimes": supported values:'
            ' "Always", "Never", "OnFailure"'
        ],
    ),
    ({"dnsPolicy": "x"}, ['dnsPolicy: Unsupported value: "x"']),
    ({"preemptionPolicy": "x"}, ['preemptionPolicy: Unsupported value: "x"']),
    *(
        (
            {"os": {"name": name}},
            [f"os.name: Unsupported value: {shown}: supported values:"],
        )
        for name, shown in (("windows", '"windows"'), (["windows"], '["windows"]'))
    ),
    *(
        ({name: "A_b"}, [f'{name}: Invalid value: "A_b": {SUBDOMAIN}'])
        for name in ("nodeName", "serviceAccountName", "priorityClassName", "runtimeClassName")
    ),
    *(
        ({name: "a.b"}, [f'{name}: Invalid value: "a.b": a lowercase RFC 1123 label'])
        for name in ("hostname", "subdomain")
    ),
    ({"subdomain": 5}, ["subdomain: Invalid value: 5: must be a text"]),
    *(
        ({"activeDeadlineSeconds": value}, [f"activeDeadlineSeconds: Invalid value: {text}"])
        for value, text in ((0, f"0: {DEADLINE}"), ("5", f'"5": {DEADLINE}'), (2**31, str(2**31)))
    ),
    ({"dnsPolicy": "None"}, ["dnsConfig: Required value: must provide `dnsConfig` when"]),
    (
        {"dnsPolicy": "None", **dns(searches=["a"])},
        ["dnsConfig.nameservers: Required value: must provide at least one DNS nameserver"],
    ),
    (dns(nameservers=["1.1.1.1"] * 4), ["dnsConfig.nameservers: Invalid value"]),
    *(
        (
            dns(nameservers=[text]),
            [f'dnsConfig.nameservers[0]: Invalid value: "{text}": must'],
        )
        for text in ("", "1.1.1", "1.1.1.1.1", "fe80::1%eth0", "256.1.1.1", "x" * 99)
    ),
    (dns(searches=["a"] * 33), ["dnsConfig.searches: Invalid value"]),
    (dns(searches=["a" * 63] * 33), 2 * ["dnsConfig.searches: Invalid value"]),
    (dns(searches=["a_b", "A"]), ['dnsConfig.searches[1]: Invalid value: "A": a lowercase RFC']),
    (dns(options=[{"value": "x"}]), ["dnsConfig.options[0]: Required value: must not be empty"]),
    ({"hostAliases": [{"ip": "x"}]}, [f'hostAliases[0].ip: Invalid value: "x": {NO_ADDRESS}']),
    (
        {"hostAliases": [{"ip": "1.2.3.4", "hostnames": ["@"]}]},
        [f'hostAliases[0].hostnames[0]: Invalid value: "@": {SUBDOMAIN}'],
    ),
    ({"readinessGates": [{}]}, 2 * ['readinessGates[0].conditionType: Invalid value: ""']),
    ({"overhead": {"cpu": "-1"}}, ['overhead.limits[cpu]: Invalid value: "-1": must be greater']),
    ({"resourceClaims": [{"name": "c"}]}, ["resourceClaims: Forbidden: agents allocate no"]),
    ({"hostnameOverride": "A_b"}, ['hostnameOverride: Invalid value: "A_b"']),
    ({"hostnameOverride": "a" * 65}, ["hostnameOverride: Too long: may not be more than 64"]),
    (
        {"hostnameOverride": "a", "setHostnameAsFQDN": True},
        ["hostnameOverride: Forbidden: may not be specified when setHostnameAsFQDN is true"],
    ),
    (
        {"hostnameOverride": "a", "hostNetwork": True},
        ["hostnameOverride: Forbidden: may not be specified when hostNetwork is true"],
    ),
    ({"containers": []}, ["containers: Required value"]),
]


@pytest.mark.parametrize("fields", ACCEPTED)
def test_a_spec_that_the_reference_takes_is_taken(fields: dict[str, Any]) -> None:
    assert refusals(spec(**fields)) == []


@pytest.mark.parametrize(("fields", "found"), REFUSED)
def test_a_spec_no_agent_could_run_is_refused_with_every_cause(
    fields: dict[str, Any], found: list[str]
) -> None:
    assert_refused(refusals(spec(**fields)), *found, below="spec")


APPARMOR = "container.apparmor.security.beta.kubernetes.io/"


@pytest.mark.parametrize(
    ("annotations", "fields", "found"),
    [
        ({}, {}, []),
        ({f"{APPARMOR}c": "runtime/default", "other": "x"}, {}, []),
        ({f"{APPARMOR}c": "localhost/profile"}, {}, []),
        (
            {f"{APPARMOR}d": "unconfined"},
            {},
            [f'metadata.annotations[{APPARMOR}d]: Invalid value: "d": container not found'],
        ),
        (
            {f"{APPARMOR}c": "strict"},
            {},
            [f'metadata.annotations[{APPARMOR}c]: Invalid value: "strict": invalid AppArmor'],
        ),
        ({}, {"schedulingGates": [{"name": "g"}]}, []),
        (
            {},
            {"schedulingGates": [{"name": "g"}], "nodeName": "n"},
            ["spec.nodeName: Forbidden: cannot be set until all schedulingGates have been"],
        ),
        (
            {},
            {"ephemeralContainers": [{**CONTAINER, "name": "e"}]},
            ["spec.ephemeralContainers: Forbidden: cannot be set on create"],
        ),
    ],
)
def test_a_new_pod_has_nothing_that_is_only_set_later(
    annotations: dict[str, str], fields: dict[str, Any], found: list[str]
) -> None:
    causes = creation_causes({"annotations": annotations}, spec(**fields))
    assert_refused([f"{cause.field}: {cause.message}" for cause in causes], *found)


def test_a_cause_shows_only_the_beginning_of_what_is_too_long() -> None:
    long = "x" * 1_000_000
    resources = {"limits": {long: 1}, "requests": {long: "many"}}
    found = [*spec_causes(spec(hostname=long)), *spec_causes(container(resources=resources))]
    assert len(found) >= 3
    assert all(len(cause.field) + len(cause.message) < 4000 for cause in found)


class Asked(dict[str, Any]):
    """A spec of nothing but one container, itself, that notes what it is asked for."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return [self] if name == "containers" else default


@pytest.mark.parametrize(
    ("rule", "fields"),
    [
        (placement.placement_causes, placement.FIELDS),
        (isolation.pod_causes, {*isolation.POD_FIELDS, "os"}),  # that only beside a context
        (references.api_references, {*references.FIELDS, *podspec.LISTS, "name"}),
    ],
)
def test_a_rule_is_asked_about_every_spec_that_has_a_field_of_it(rule: Any, fields: Any) -> None:
    spec = Asked()
    assert list(rule(spec)) == []
    assert spec.names
    assert spec.names <= set(fields)


MANY = 1000  # a list of containers or volumes may have no more


@pytest.mark.parametrize(
    "document",
    [
        spec(containers=[{"name": "c", "image": "i", "ports": [{"containerPort": 1}] * 9}] * MANY),
        spec(volumes=[{"name": "v", "projected": {"sources": [{"secret": {}}] * 20}}] * MANY),
        container(env=[{"name": "="}] * 20_000),
        container(volumeMounts=[{"name": "v", "mountPath": "/" + "../" * 9}] * 20_000),
        spec(tolerations=[{"key": "a" * 300}] * 20_000),
        spec(topologySpreadConstraints=[{}] * 20_000),
        spec(securityContext={"sysctls": [{"name": "a-" * 126 + "!"}] * 20_000}),
        spec(nodeName="a" * 2_000_000 + "!"),
    ],
)
def test_a_hundred_causes_of_a_large_pod_are_found_quickly(document: dict[str, Any]) -> None:
    """The server shows no more; the deadline is generous, and quadratic work takes minutes."""
    started = time.process_time()
    found: list[Cause] = [*itertools.islice(spec_causes(document), 100)]
    assert found
    assert time.process_time() - started < 2
