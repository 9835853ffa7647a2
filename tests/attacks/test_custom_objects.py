"""Objects of defined kinds whose definitions are costly: others wait for none of them.

An administrator wrote the definition, a tenant chooses the objects. A pattern matches in linear
time, but takes as long for each character as its size allows; a problem is told with what it is
about; columns are shown of each object, whatever its size.
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
# Patterns of a growing compiled size, with how many characters are held against each.
PATTERNS = {
    "small": ("[ab]*a[ab]{8}[c-z]", 65_536),
    "usual": ("[ab]*a[ab]{20}[c-z]", 8_192),
    "middle": ("(a|ab|b)*a(a|ab|b){15}[c-z]", 8_192),
    "large": ("(a|ab|b)*a(a|ab|b){60}[c-z]", 4_096),
    "largest": ("(a|ab|b)*a(a|ab|b){150}[c-z]", 2_048),
}
TOTAL = 2_500_000  # characters of an object
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


ANY = {"x-kubernetes-preserve-unknown-fields": True}
OPEN = {"type": "object", **ANY}
TOO_SHORT = [{"minLength": TOTAL * 2 + number} for number in range(100)]
ALWAYS_ONE = [{"enum": [f"{number}"]} for number in range(390)]
THOUSAND = {**OPEN, "required": [f"r{number}" for number in range(1000)]}
# Rules that take long to judge, or to tell, with a value that breaks each and how that is told.
RULES: dict[str, tuple[dict[str, Any], Any, bytes]] = {
    "any": ({"type": "string", "anyOf": TOO_SHORT}, "x" * TOTAL, b"must fit one of"),
    "required": (
        {**OPEN, "required": [f"r{number}" for number in range(100)]},
        {"text": "x" * TOTAL},
        b"spec.required.r",
    ),
    "numbers": (
        {"type": "array", "items": {"type": "number", "multipleOf": 0.01}},
        [*[1e308] * 18_000, 0.001],
        b"should be a multiple of 0.01",
    ),
    "negated": (
        {"type": "array", "items": {"type": "number", "not": {"multipleOf": 0.03}}},
        [*[1e308] * 18_000, 0.03],
        b"must not fit the schema in not",
    ),
    "fractions": (
        {"type": "array", "items": {"type": "number", "enum": [n + 0.5 for n in range(50)]}},
        [*[49.5] * 18_000, 0.1],
        b"supported values",
    ),
    "missing": (THOUSAND, {"text": "x" * 60_000}, b"spec.missing.r"),
    "absent": (THOUSAND, {f"n{number}": number for number in range(900)}, b"spec.absent.r"),
    "wanted": (THOUSAND, {"text": "x" * 3_900}, b"spec.wanted.r99"),
    "choices": (
        {"type": "array", "items": {"type": "string", "oneOf": ALWAYS_ONE}},
        [*["0"] * 18_000, "x"],
        b"must fit exactly one of",
    ),
}
# Paths of columns, with a large value for each.
SHOWN: dict[str, tuple[str, str, Any]] = {
    "everything": (
        "string",
        ".spec.x",
        {"é" * 20 + f"{number * 7919 % 19_001}": number for number in range(19_000)},
    ),
    "escaped": ("string", ".spec.x", ["\n" * 1_400_000]),
    "filters": ("string", '.spec.x[?(@.t=="Ready")].s', [{"t": "x", "s": "y"}] * 6_000),
    "times": ("date", ".spec.x", "2026-01-01T00:00:00." + "1" * TOTAL),
}


def definition(kind: str, fields: dict[str, Any], *columns: dict[str, str]) -> dict[str, Any]:
    plural = f"{kind.lower()}s"
    spec = {"type": "object", "properties": fields}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
        "additionalPrinterColumns": columns,
    }
    names = {"plural": plural, "kind": kind}
    return {
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def definitions() -> Iterator[dict[str, Any]]:
    yield definition(
        "Text",
        {
            name: {"type": "array", "items": {"type": "string", "pattern": pattern}}
            for name, (pattern, _) in PATTERNS.items()
        },
    )
    yield definition("Rule", {name: rule for name, (rule, _, _) in RULES.items()})
    for name, (kind, path, _) in SHOWN.items():
        column = {"type": kind, "jsonPath": path}
        columns = ({"name": f"c{number}", **column} for number in range(32))
        yield definition(name.capitalize(), {"x": ANY}, *columns)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    with harness.attacked(tmp_path_factory.mktemp("texts"), harness.AT_ANY_RATE) as running:
        running.make(DEFINITIONS, *definitions())
        every = {"apiGroups": [GROUP], "resources": ["*"], "verbs": ["*"]}
        running.make(f"{RBAC}/clusterroles", {"metadata": {"name": "texts"}, "rules": [every]})
        harness.grant(running, TENANT, namespace=TENANT, role="texts")
        for made in definitions():
            path = below(made["spec"]["names"]["plural"])
            eventually(
                lambda path=path: running.ask(OPERATOR, "GET", path).status == 200,
                within_s=30, what=f"{path} is served",
            )  # fmt: skip
        yield running


def below(plural: str) -> str:
    return f"/apis/{GROUP}/v1/namespaces/{TENANT}/{plural}"


def an_object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    }  # fmt: skip


def written(name: str, *texts: str) -> dict[str, Any]:
    return an_object("Text", f"a-{len(texts)}-{name}", {name: texts})


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
        answers = [target.ask(TENANT, "POST", below("texts"), body) for body in bodies]
    told = [(answer.status, answer.body[:250], answer.body[-250:]) for answer in answers]
    assert [answer.status for answer in answers] == [422, 422, 422, 201], told
    assert b"should match" in answers[0].body, told
    assert b"too long to be held against its pattern" in answers[1].body, told
    harness.no_long_stall(seen)
    assert seen.refused + seen.errors == 0, seen


@pytest.mark.parametrize("name", RULES)
def test_what_is_slow_to_judge_or_to_tell_keeps_nobody_waiting(target: Attacked, name: str) -> None:
    _, value, text = RULES[name]
    before = target.resident_bytes()
    with target.witnessed() as seen:
        answer = target.ask(TENANT, "POST", below("rules"), an_object("Rule", name, {name: value}))
    assert answer.status == 422 and text in answer.body, answer.body[:500]
    harness.no_long_stall(seen)
    assert seen.refused + seen.errors == 0, seen
    grown_mb = (target.resident_bytes() - before) / 1e6
    assert grown_mb < 60, f"{grown_mb:.0f} MB more"


@pytest.mark.parametrize("name", SHOWN)
def test_columns_of_large_objects_keep_nobody_waiting(target: Attacked, name: str) -> None:
    path, kind = below(f"{name}s"), name.capitalize()
    made = an_object(kind, "large", {"x": SHOWN[name][2]})
    assert target.ask(TENANT, "POST", path, made).status == 201
    with target.witnessed() as seen:
        shown = target.ask(TENANT, "GET", path, Accept=TABLE)
    assert len(shown.json()["rows"][0]["cells"]) == 33, shown.body[:500]
    harness.no_long_stall(seen)
    assert seen.refused + seen.errors == 0, seen
