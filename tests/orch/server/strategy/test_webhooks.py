"""K:pkg/apis/admissionregistration/validation/validation_test.go, and what is stricter here."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from orch.server.strategy.webhooks import MAX_RULES, MAX_WEBHOOKS, STRATEGIES

MUTATING, VALIDATING = STRATEGIES
RULE = {"operations": ["CREATE"], "apiGroups": ["a"], "apiVersions": ["v1"], "resources": ["pods"]}
HOOK = {
    "name": "webhook.k8s.io",
    "clientConfig": {"url": "https://example.com/webhook"},
    "rules": [RULE],
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
}


def found(*hooks: dict[str, Any], strategy: Any = VALIDATING) -> list[str]:
    document = {"metadata": {"name": "x"}, "webhooks": copy.deepcopy(list(hooks))}
    strategy.prepare_create(document)
    return [f"{cause.field}: {cause.message}" for cause in strategy.validate(document, None)]


def test_a_webhook_that_says_the_least_is_completed() -> None:
    for strategy in STRATEGIES:
        document = {"metadata": {"name": "x"}, "webhooks": [copy.deepcopy(HOOK)]}
        strategy.prepare_create(document)
        assert [*strategy.validate(document, None)] == []
        (hook,) = document["webhooks"]
        assert hook["failurePolicy"] == "Fail"
        assert hook["matchPolicy"] == "Equivalent"
        assert hook["timeoutSeconds"] == 10
        assert hook["namespaceSelector"] == hook["objectSelector"] == {}
        assert hook["rules"][0]["scope"] == "*"  # type: ignore[index]
        assert hook.get("reinvocationPolicy") == ("Never" if strategy is MUTATING else None)


def rule(**fields: Any) -> dict[str, Any]:
    return {"rules": [{**RULE, **fields}]}


def client(**fields: Any) -> dict[str, Any]:
    return {"clientConfig": fields}


PROBLEMS: list[tuple[dict[str, Any], str]] = [
    ({"name": "k8s.io"}, "webhooks[0].name: Invalid value: \"k8s.io\": should be a domain with at"),
    ({"name": ""}, "webhooks[0].name: Required value"),
    ({"name": "A.b.c"}, "webhooks[0].name: Invalid value: \"A.b.c\": a lowercase RFC 1123"),
    (rule(operations=[]), "webhooks[0].rules[0].operations: Required value"),
    (rule(operations=["CREATE", "*"]),
     "webhooks[0].rules[0].operations: Invalid value: [\"CREATE\",\"*\"]: if '*' is present"),
    (rule(operations=["PATCH"]),
     "webhooks[0].rules[0].operations[0]: Unsupported value: \"PATCH\": supported values: \"*\", "
     "\"CONNECT\", \"CREATE\", \"DELETE\", \"UPDATE\""),
    (rule(apiGroups=["a", "*"]), "webhooks[0].rules[0].apiGroups: Invalid value"),
    (rule(apiVersions=["v1", "*"]), "webhooks[0].rules[0].apiVersions: Invalid value"),
    (rule(apiVersions=[""]), "webhooks[0].rules[0].apiVersions[0]: Required value"),
    (rule(resources=[]), "webhooks[0].rules[0].resources: Required value"),
    (rule(resources=[""]), "webhooks[0].rules[0].resources[0]: Required value"),
    (rule(resources=["*/*", "a"]),
     "webhooks[0].rules[0].resources: Invalid value: [\"*/*\",\"a\"]: if '*/*' is present"),
    (rule(resources=["a/*", "a/x"]),
     "webhooks[0].rules[0].resources[1]: Invalid value: \"a/x\": if 'a/*' is present"),
    (rule(resources=["*/a", "x/a"]),
     "webhooks[0].rules[0].resources[1]: Invalid value: \"x/a\": if '*/a' is present"),
    (rule(resources=["*", "a"]),
     "webhooks[0].rules[0].resources: Invalid value: [\"*\",\"a\"]: if '*' is present"),
    (rule(scope="Node"), "webhooks[0].rules[0].scope: Unsupported value"),
    ({"rules": [RULE] * (MAX_RULES + 1)}, "webhooks[0].rules: Too many"),
    ({"failurePolicy": "other"}, "webhooks[0].failurePolicy: Unsupported value: \"other\""),
    ({"matchPolicy": "other"}, "webhooks[0].matchPolicy: Unsupported value: \"other\""),
    ({"sideEffects": None}, "webhooks[0].sideEffects: Required value: must specify one of None"),
    ({"sideEffects": "Some"}, "webhooks[0].sideEffects: Unsupported value: \"Some\""),
    ({"sideEffects": "Unknown"}, "webhooks[0].sideEffects: Unsupported value: \"Unknown\""),
    ({"timeoutSeconds": 0}, "webhooks[0].timeoutSeconds: Invalid value: 0: the timeout value must"),
    ({"timeoutSeconds": 31}, "webhooks[0].timeoutSeconds: Invalid value: 31"),
    ({"objectSelector": {"matchLabels": {"-": ""}}}, "webhooks[0].objectSelector: Invalid value"),
    ({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "~"}]}},
     "webhooks[0].namespaceSelector: Invalid value"),
    ({"objectSelector": {"matchLabels": {f"a{n}": "" for n in range(200)}}},
     "webhooks[0].objectSelector: Too many"),
    ({"admissionReviewVersions": []}, "webhooks[0].admissionReviewVersions: Required value"),
    ({"admissionReviewVersions": ["v1beta1"]}, "webhooks[0].admissionReviewVersions: Invalid"),
    ({"admissionReviewVersions": ["v1", "v1"]}, "webhooks[0].admissionReviewVersions[1]: Invalid"),
    ({"admissionReviewVersions": ["v1", "V2"]}, "webhooks[0].admissionReviewVersions[1]: Invalid"),
    ({"matchConditions": [{"name": "a", "expression": "true"}]},
     "webhooks[0].matchConditions: Forbidden: conditions in CEL are not evaluated here"),
    (client(), "webhooks[0].clientConfig.url: Required value"),
    (client(service={"name": "n", "namespace": "ns"}),
     "webhooks[0].clientConfig.service: Forbidden: this server has no Services"),
    (client(url="http://example.com"), "webhooks[0].clientConfig.url: Invalid value: \"http://ex"),
    (client(url="https://"), "webhooks[0].clientConfig.url: Invalid value: \"https://\": host"),
    (client(url="https://h:0"), "webhooks[0].clientConfig.url: Invalid value: \"https://h:0\""),
    (client(url="https://h:99999"), "webhooks[0].clientConfig.url: Invalid value"),
    (client(url="https://[::1"), "webhooks[0].clientConfig.url: Invalid value"),
    (client(url="https://u:p@h"), "webhooks[0].clientConfig.url: Invalid value"),
    (client(url="https://h/?a=b"), "webhooks[0].clientConfig.url: Invalid value"),
    (client(url="https://h/#a"), "webhooks[0].clientConfig.url: Invalid value"),
    (client(url="https://h/\n"), "webhooks[0].clientConfig.url: Invalid value"),
    (client(url="https://h/" + "x" * 9999), "webhooks[0].clientConfig.url: Invalid value"),
    (client(url="https://h", caBundle="eA=="), "webhooks[0].clientConfig.caBundle: Invalid value"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "wanted"), PROBLEMS)
def test_what_makes_no_sense_is_refused_by_its_path(fields: dict[str, Any], wanted: str) -> None:
    (problem,) = found({**HOOK, **fields})
    assert problem.startswith(wanted), problem


def test_names_are_unique_and_webhooks_few() -> None:
    assert found(HOOK, HOOK) == ['webhooks[1].name: Duplicate value: "webhook.k8s.io"']
    assert found(*[HOOK] * (MAX_WEBHOOKS + 1)) == [
        "webhooks: Too many: 65: must have at most 64 items"
    ]


def test_only_mutating_webhooks_are_asked_again() -> None:
    (problem,) = found({**HOOK, "reinvocationPolicy": "Often"}, strategy=MUTATING)
    assert problem.startswith("webhooks[0].reinvocationPolicy: Unsupported value")
