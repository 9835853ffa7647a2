"""Objects of a defined kind whose schema has slow patterns: others wait for none of their texts.

An administrator wrote the patterns, a tenant chooses the texts: each pattern matches in linear
time, but takes as long for each character as its size allows.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.attacks import harness
from tests.attacks.harness import OPERATOR, RBAC, TENANT, Attacked
from tests.e2e.harness import eventually

pytestmark = pytest.mark.alone

GROUP = "attacks.example.com"
DEFINITIONS = "/apis/apiextensions.orch.io/v1/customresourcedefinitions"
TEXTS = f"/apis/{GROUP}/v1/namespaces/{TENANT}/texts"
# Patterns of a growing compiled size, with how many characters are held against each.
PATTERNS = {
    "small": ("[ab]*a[ab]{8}[c-z]", 65_536),
    "usual": ("[ab]*a[ab]{20}[c-z]", 8_192),
    "middle": ("(a|ab|b)*a(a|ab|b){15}[c-z]", 8_192),
    "large": ("(a|ab|b)*a(a|ab|b){60}[c-z]", 4_096),
    "largest": ("(a|ab|b)*a(a|ab|b){150}[c-z]", 2_048),
}
TOTAL = 2_500_000  # characters of an object


def definition() -> dict[str, Any]:
    fields = {
        name: {"type": "array", "items": {"type": "string", "pattern": pattern}}
        for name, (pattern, _) in PATTERNS.items()
    }
    spec = {"type": "object", "properties": fields}
    return {
        "metadata": {"name": f"texts.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": "texts", "kind": "Text"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
                }
            ],
        },
    }


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    with harness.attacked(tmp_path_factory.mktemp("texts"), harness.AT_ANY_RATE) as running:
        running.make(DEFINITIONS, definition())
        every = {"apiGroups": [GROUP], "resources": ["*"], "verbs": ["*"]}
        running.make(f"{RBAC}/clusterroles", {"metadata": {"name": "texts"}, "rules": [every]})
        harness.grant(running, TENANT, namespace=TENANT, role="texts")
        eventually(
            lambda: running.ask(OPERATOR, "GET", TEXTS).status == 200,
            within_s=30, what="the kind is served",
        )  # fmt: skip
        yield running


def written(name: str, *texts: str) -> dict[str, Any]:
    metadata = {"name": f"a-{len(texts)}-{name}"}
    return {
        "apiVersion": f"{GROUP}/v1", "kind": "Text", "metadata": metadata, "spec": {name: texts},
    }  # fmt: skip


def text_of(length: int) -> str:
    chosen = random.Random(length)
    return "".join(chosen.choices("ab", k=length))


@pytest.mark.parametrize("name", PATTERNS)
def test_texts_that_are_slow_to_match_keep_nobody_waiting(target: Attacked, name: str) -> None:
    length = PATTERNS[name][1]
    text = text_of(length)
    bodies = [
        written(name, text),
        written(name, text + "a"),
        written(name, *[text] * (TOTAL // length)),
        written(name, *[text[:-201] + "a" * 200 + "x"] * (TOTAL // length)),
    ]
    with target.witnessed() as seen:
        answers = [target.ask(TENANT, "POST", TEXTS, body) for body in bodies]
    told = [(answer.status, answer.body[:250], answer.body[-250:]) for answer in answers]
    assert [answer.status for answer in answers] == [422, 422, 422, 201], told
    assert b"should match" in answers[0].body, told
    assert b"too long to be held against its pattern" in answers[1].body, told
    harness.no_long_stall(seen)
    assert seen.refused + seen.errors == 0, seen
