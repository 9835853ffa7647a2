"""K:pkg/apis/core/validation TestValidateTolerations, …Affinity…, …TopologySpreadConstraints."""

from __future__ import annotations

from typing import Any

import pytest

from tests.orch.wire.podrules.podtable import assert_refused, refusals, spec

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
IN = {"key": "k", "operator": "In", "values": ["v"]}
NO_OPERATOR = "not a valid selector operator"
LABEL = "a valid label must be an empty string or consist of"


def toleration(**fields: Any) -> dict[str, Any]:
    return {"tolerations": [fields]}


def nodes(**terms: Any) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [terms]}}}}


def preferred(weight: int = 1, **term: Any) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": weight, "preference": term}]}}}


def pods(**term: Any) -> dict[str, Any]:
    return {"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "zone", **term}]}}}


def spread(*changes: dict[str, Any]) -> dict[str, Any]:
    valid = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [{**valid, **change} for change in changes]}


ACCEPTED: list[dict[str, Any]] = [
    {"nodeSelector": {"orch.io/os": "linux", "x": ""}},
    toleration(operator="Exists"),
    toleration(operator="Exists", effect="NoExecute", tolerationSeconds=-5),
    toleration(key="a.b/c", operator="Equal", value="v", effect="PreferNoSchedule"),
    toleration(key="a", value=""),
    toleration(key="a", operator="Exists", value="", effect=""),
    nodes(matchExpressions=[IN, {"key": "k", "operator": "Gt", "values": ["1"]}]),
    nodes(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["n"]}]),
    nodes(matchExpressions=[{"key": "k", "operator": "DoesNotExist"}]),
    nodes(),
    preferred(100, matchExpressions=[{**IN, "values": ["not a label"]}]),
    pods(labelSelector={"matchLabels": {"a": "b"}, "matchExpressions": [IN]}, namespaces=["n"]),
    {"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": "a.b/c"}]}}},
    {"affinity": {}},
    spread({}, {"whenUnsatisfiable": "ScheduleAnyway"}, {"topologyKey": "host"}),
    spread({"minDomains": 2, "nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Ignore"}),
    {"schedulingGates": [{"name": "a.b/c"}, {"name": "d"}]},
]
OF_NODES = f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
OF_PODS = f"affinity.podAffinity.{REQUIRED}[0]"
CHOICE = f"affinity.nodeAffinity.{PREFERRED}[0]"
SPREAD = "topologySpreadConstraints[0]"
REFUSED: list[tuple[dict[str, Any], list[str]]] = [
    ({"nodeSelector": {"a/b/c": "x"}}, ['nodeSelector: Invalid value: "a/b/c": a qualified name']),
    ({"nodeSelector": {"a": "x y"}}, [f'nodeSelector: Invalid value: "x y": {LABEL}']),
    (toleration(key="a b", operator="Exists"), ['tolerations[0].key: Invalid value: "a b": name']),
    (toleration(), ['tolerations[0].operator: Invalid value: "": operator must be Exists when']),
    (
        toleration(operator="Equal", value="x"),
        ['tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key`'],
    ),
    (
        toleration(key="a", operator="Exists", value="x"),
        ['tolerations[0].operator: Invalid value: "x": value must be empty when'],
    ),
    (toleration(key="a", value="x y"), [f'tolerations[0].operator: Invalid value: "x y": {LABEL}']),
    (toleration(key="a", operator="In"), ['tolerations[0].operator: Unsupported value: "In"']),
    (
        toleration(key="a", operator="Exists", effect="NoSchedule", tolerationSeconds=5),
        ["tolerations[0].effect: Invalid value: \"NoSchedule\": effect must be 'NoExecute'"],
    ),
    (toleration(key="a", effect="No"), ['tolerations[0].effect: Unsupported value: "No"']),
    (
        {"affinity": {"nodeAffinity": {REQUIRED: {}}}},
        [f"{OF_NODES}: Required value: must have at least one node selector term"],
    ),
    *(
        (
            nodes(matchExpressions=[{"key": "k", **fields}]),
            [f"{OF_NODES}[0].matchExpressions[0].{text}"],
        )
        for fields, text in (
            ({"operator": "In"}, "values: Required value: must be specified when"),
            ({"operator": "Exists", "values": ["v"]}, "values: Forbidden: may not be specified"),
            ({"operator": "Lt", "values": ["1", "2"]}, "values: Required value: must be specified"),
            ({"operator": "Is", "values": ["v"]}, f'operator: Invalid value: "Is": {NO_OPERATOR}'),
            ({**IN, "key": "a b"}, 'key: Invalid value: "a b"'),
            ({**IN, "values": ["a b"]}, 'values[0]: Invalid value: "a b"'),
        )
    ),
    *(
        (nodes(matchFields=[fields]), [f"{OF_NODES}[0].matchFields[0].{text}"])
        for fields, text in (
            ({"key": "metadata.uid", "operator": "In", "values": ["n"]}, "key: Invalid value"),
            ({"key": "metadata.name", "operator": "Exists"}, "operator: Invalid value"),
            (
                {"key": "metadata.name", "operator": "In", "values": ["a", "b"]},
                "values: Required value: must be only one value",
            ),
            (
                {"key": "metadata.name", "operator": "In", "values": ["A"]},
                'values[0]: Invalid value: "A"',
            ),
        )
    ),
    *((preferred(weight), [f"{CHOICE}.weight: Invalid value: {weight}"]) for weight in (0, 101)),
    (
        preferred(1, matchExpressions=[{"key": "k", "operator": "x"}]),
        [f"{CHOICE}.preference.matchExpressions[0].operator: Invalid value"],
    ),
    (pods(topologyKey=""), [f"{OF_PODS}.topologyKey: Required value: can not be empty"]),
    (pods(topologyKey="a b"), [f'{OF_PODS}.topologyKey: Invalid value: "a b"']),
    (pods(namespaces=["a.b"]), [f'{OF_PODS}.namespace: Invalid value: "a.b"']),
    (
        pods(labelSelector={"matchLabels": {"a b": "c"}}),
        [f'{OF_PODS}.labelSelector.matchLabels: Invalid value: "a b"'],
    ),
    (
        pods(namespaceSelector={"matchExpressions": [{"key": "k", "operator": "Gt"}]}),
        [f'{OF_PODS}.namespaceSelector.matchExpressions[0].operator: Invalid value: "Gt"'],
    ),
    (
        {"affinity": {"podAntiAffinity": {PREFERRED: [{"weight": 0, "podAffinityTerm": {}}]}}},
        [
            f"affinity.podAntiAffinity.{PREFERRED}[0].podAffinityTerm.topologyKey: Required value",
            f"affinity.podAntiAffinity.{PREFERRED}[0].weight: Invalid value: 0: must be in the",
        ],
    ),
    (spread({"maxSkew": 0}), [f"{SPREAD}.maxSkew: Invalid value: 0: must be greater than 0"]),
    (spread({"topologyKey": ""}), [f"{SPREAD}.topologyKey: Required value: can not be empty"]),
    (spread({"whenUnsatisfiable": ""}), [f"{SPREAD}.whenUnsatisfiable: Required value"]),
    (spread({"whenUnsatisfiable": "x"}), [f'{SPREAD}.whenUnsatisfiable: Unsupported value: "x"']),
    (spread({"nodeTaintsPolicy": "x"}), [f'{SPREAD}.nodeTaintsPolicy: Unsupported value: "x"']),
    (spread({"minDomains": 0}), [f"{SPREAD}.minDomains: Invalid value: 0: must be greater"]),
    (
        spread({"minDomains": 1, "whenUnsatisfiable": "ScheduleAnyway"}),
        [f"{SPREAD}.minDomains: Invalid value: 1: can only use minDomains if"],
    ),
    (
        spread({}, {}),
        [
            "topologySpreadConstraints[1].{topologyKey, whenUnsatisfiable}: Duplicate value:"
            ' "{zone, DoNotSchedule}"'
        ],
    ),
    ({"schedulingGates": [{"name": "a b"}]}, ['schedulingGates[0]: Invalid value: "a b": name']),
    (
        {"schedulingGates": [{"name": "a"}, {"name": "a"}]},
        ['schedulingGates[1]: Duplicate value: "a"'],
    ),
]


@pytest.mark.parametrize("fields", ACCEPTED)
def test_a_choice_of_nodes_that_the_reference_takes_is_taken(fields: dict[str, Any]) -> None:
    assert refusals(spec(**fields)) == []


@pytest.mark.parametrize(("fields", "found"), REFUSED)
def test_a_choice_of_nodes_that_means_nothing_is_refused_by_its_path(
    fields: dict[str, Any], found: list[str]
) -> None:
    assert_refused(refusals(spec(**fields)), *found, below="spec")


@pytest.mark.parametrize(
    "fields",
    [
        {"affinity": 5},
        {"affinity": {"nodeAffinity": [], "podAffinity": {REQUIRED: "x", PREFERRED: [7]}}},
        {"schedulingGates": [5, None]},
        {"dnsConfig": {"nameservers": "x", "searches": [5], "options": {}}},
        {"hostAliases": [{"ip": "1.1.1.1", "hostnames": "x"}]},
        {"overhead": []},
    ],
)
def test_values_of_a_wrong_type_in_fields_without_records_do_no_harm(
    fields: dict[str, Any],
) -> None:
    assert refusals(spec(**fields)) == []
