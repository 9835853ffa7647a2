from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch.wire.selectors import (
    FieldRequirement,
    LabelRequirement,
    LabelSelector,
    label_selector_of,
    parse_field_selector,
    parse_label_selector,
)


# apimachinery labels/selector_test.go: TestSelectorParse, TestSetSelectorParser.
@pytest.mark.parametrize(
    "text",
    [
        "", "x=a,y=b,z=c", "x!=a,y=b", "x=", "x= ", "x=,z= ", "x= ,z= ", "x>1", "x>1,z<5", "!x",
        "x", "x in (a)", "x in (a, b),y notin(c)", "x in ()", "x in (,)", "x in (a,)",
        "\t x == a \r\n", "in", "notin in (in,notin)", "example.com/k=v", "x=in",
    ],
)  # fmt: skip
def test_label_selectors_are_accepted(text: str) -> None:
    parse_label_selector(text)


@pytest.mark.parametrize(
    "text",
    [
        "x=a||y=b", "x==a==b", "!x=a", "x<a", "x>1.5", "x>", "x=a,", ",x", "x,,y", "!", "x in",
        "x in a", "x in (a", "x in (a b)", "x in (a),", "x notin", "x y", "=a", "x=(a)",
        "!x in (a)", "a b=c", "x=-bad", "/k=v", "UPPER.com/k=v", "k=" + "v" * 64, "x in ((a))",
        "x>99999999999999999999", "x=%", "!!x",
    ],
)  # fmt: skip
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="label"):
        parse_label_selector(text) or pytest.fail("accepted")


def test_an_error_quotes_the_selector_and_the_place() -> None:
    with pytest.raises(ValueError, match=r"'x=a\|\|y=b'|'a\|\|y'"):
        parse_label_selector("x=a||y=b")
    with pytest.raises(ValueError, match="'x in a': found 'a', expected: '\\('"):
        parse_label_selector("x in a")


# apimachinery labels/selector_test.go: TestSelectorMatches, TestSetMatches, TestSetSelectorParser.
@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("", {"x": "y"}, True),
        ("x=y", {"x": "y"}, True),
        ("x=y,z=w", {"x": "y", "z": "w"}, True),
        ("x=y,z=w", {"x": "y", "z": "z"}, False),
        ("x!=y", {"x": "z"}, True),
        ("x!=y", {}, True),
        ("notin=in", {"notin": "in"}, True),
        ("x", {"x": "z"}, True),
        ("x", {}, False),
        ("!x", {"y": "z"}, True),
        ("!x", {"x": ""}, False),
        ("x=", {"x": ""}, True),
        ("x=", {}, False),
        ("x in ()", {"x": ""}, True),
        ("x in (a,)", {"x": ""}, True),
        ("x in (,a)", {"x": ""}, True),
        ("x in (a,,b)", {"x": ""}, True),
        ("x in (a,b)", {"x": "c"}, False),
        ("x notin (a,b)", {}, True),
        ("x notin (a,b)", {"x": "a"}, False),
        ("x>1", {"x": "2"}, True),
        ("x>1", {"x": "1"}, False),
        ("x<1", {"x": "0"}, True),
        ("x>1", {"x": "many"}, False),
        ("x>1", {"x": "1_000"}, False),
        ("x>1", {}, False),
        ("x in (in,notin)", {"x": "notin"}, True),
    ],
)
def test_label_selectors_match(text: str, labels: dict[str, str], matches: bool) -> None:
    assert parse_label_selector(text).matches(labels) is matches


KEYS = st.sampled_from(["a", "b", "orch.io/x"])
VALUES = st.sampled_from(["", "1", "v", "in"])
REQUIREMENTS = st.one_of(
    st.builds(LabelRequirement, KEYS, st.sampled_from(["exists", "!"])),
    st.builds(
        LabelRequirement, KEYS, st.sampled_from(["in", "notin"]), st.frozensets(VALUES, min_size=1)
    ),
    st.builds(
        LabelRequirement,
        KEYS,
        st.sampled_from([">", "<"]),
        st.sampled_from(["1", "7"]).map(lambda v: frozenset({v})),
    ),
)


def _written(requirement: LabelRequirement, space: str) -> str:
    key, values = requirement.key, sorted(requirement.values)
    match requirement.operator:
        case "exists":
            return f"{space}{key}{space}"
        case "!":
            return f"!{space}{key}"
        case ">" | "<" as symbol:
            return f"{key}{space}{symbol}{space}{values[0]}"
        case "in" if len(values) == 1 and space:
            return f"{key}{space}=={space}{values[0]}"
        case word:
            return f"{key} {word}{space}({(space + ',').join(values)})"


@given(st.lists(REQUIREMENTS, max_size=5), st.sampled_from(["", " ", "\t "]))
def test_what_is_written_by_the_grammar_reads_back(
    requirements: list[LabelRequirement], space: str
) -> None:
    text = ",".join(_written(requirement, space) for requirement in requirements)
    assert parse_label_selector(text) == LabelSelector(tuple(requirements))


@given(st.text(alphabet="ab=!(),<> in1\\", max_size=20))
def test_any_text_is_read_or_refused_with_a_value_error(text: str) -> None:
    for parse in (parse_label_selector, parse_field_selector):
        try:
            parse(text)
        except ValueError as error:
            assert "selector" in str(error) or "label" in str(error)


def test_a_selector_record_is_read() -> None:
    selector = label_selector_of(
        {
            "matchLabels": {"a": "1"},
            "matchExpressions": [
                {"key": "b", "operator": "NotIn", "values": ["x"]},
                {"key": "c", "operator": "Exists"},
                {"key": "d", "operator": "DoesNotExist", "values": []},
            ],
        }
    )
    assert selector.matches({"a": "1", "c": ""})
    assert not selector.matches({"a": "1", "b": "x", "c": ""})
    assert label_selector_of({}).matches({"any": "thing"})


@pytest.mark.parametrize(
    "expression",
    [
        {"key": "a", "operator": "Near", "values": ["x"]},
        {"key": "a", "operator": "In"},
        {"key": "a", "operator": "Exists", "values": ["x"]},
        {"key": "", "operator": "Exists"},
        {"key": "a", "operator": "In", "values": ["not valid"]},
    ],
)
def test_a_wrong_selector_record_is_refused(expression: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"label|operator"):
        label_selector_of({"matchExpressions": [expression]})


# apimachinery fields/selector_test.go: TestSplitTerms, TestSplitTerm, TestEscapeValue,
# TestSelectorParse.
@pytest.mark.parametrize(
    ("text", "requirements"),
    [
        ("", []),
        ("a=b", [("a", "=", "b")]),
        ("a==b", [("a", "=", "b")]),
        ("a!=b", [("a", "!=", "b")]),
        ("a=", [("a", "=", "")]),
        ("a=b,c!=d", [("a", "=", "b"), ("c", "!=", "d")]),
        (",a=b,,", [("a", "=", "b")]),
        (r"a=b\,c\=d\\e", [("a", "=", r"b,c=d\e")]),
        ("metadata.name=x y", [("metadata.name", "=", "x y")]),
    ],
)
def test_field_selectors_are_read(text: str, requirements: list[tuple[str, str, str]]) -> None:
    assert list(parse_field_selector(text).requirements) == requirements


@pytest.mark.parametrize("text", ["a", "a,b=c", "x=a||y=b", "x==a==b", r"a=\x", "a=b\\", "a=b=c"])
def test_malformed_field_selectors_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="invalid field selector"):
        parse_field_selector(text)


def test_field_selectors_match_what_the_getter_returns() -> None:
    pod = {"spec.nodeName": "n1", "status.phase": "Running"}
    selector = parse_field_selector("spec.nodeName=n1,status.phase!=Failed")
    assert selector.matches(lambda path: pod.get(path, ""))
    assert not parse_field_selector("spec.nodeName=").matches(lambda path: pod.get(path, ""))
    assert parse_field_selector("metadata.uid=").matches(lambda path: pod.get(path, ""))


def test_a_field_fixed_by_the_selector_is_known() -> None:
    selector = parse_field_selector("metadata.name=n1,status.phase!=Failed")
    assert selector.exact("metadata.name") == "n1"
    assert selector.exact("status.phase") is None


@given(st.text(alphabet="ab,=\\ ", max_size=10))
def test_an_escaped_field_value_reads_back(value: str) -> None:
    escaped = value.replace("\\", r"\\").replace(",", r"\,").replace("=", r"\=")
    assert parse_field_selector(f"p={escaped}").requirements == (FieldRequirement("p", "=", value),)


_VALUES = st.sampled_from(("a", "b", "c"))
_LABELS = st.dictionaries(st.sampled_from(("x", "y")), _VALUES)


@given(_LABELS, st.lists(_VALUES, min_size=1, max_size=3))
def test_of_a_requirement_and_its_opposite_exactly_one_matches(
    labels: dict[str, str], values: list[str]
) -> None:
    listed = ",".join(values)
    for text, opposite in (
        (f"x in ({listed})", f"x notin ({listed})"),
        ("x", "!x"),
        (f"x={values[0]}", f"x!={values[0]}"),
    ):
        matched = parse_label_selector(text).matches(labels)
        assert parse_label_selector(opposite).matches(labels) is not matched


@given(_LABELS, st.lists(st.sampled_from(("x", "!y", "x=a", "y in (b,c)")), max_size=4))
def test_requirements_joined_match_when_each_does(labels: dict[str, str], texts: list[str]) -> None:
    joined = parse_label_selector(",".join(texts)) if texts else LabelSelector()
    assert joined.matches(labels) is all(parse_label_selector(t).matches(labels) for t in texts)


@pytest.mark.parametrize(
    ("parse", "term"), [(parse_label_selector, "!a{}"), (parse_field_selector, "a{}=b")]
)
def test_a_selector_has_a_bounded_number_of_requirements(parse, term) -> None:
    terms = [term.format(number) for number in range(101)]
    assert len(parse(",".join(terms[:100])).requirements) == 100
    with pytest.raises(ValueError, match="at most 100 requirements, not 101"):
        parse(",".join(terms))


def test_too_many_fields_are_refused_before_they_are_read() -> None:
    """Whoever names a collection has its field selector read, before it is known who they are."""
    with pytest.raises(ValueError, match="at most 100 requirements, not 101"):
        parse_field_selector("no term," * 101)


@pytest.mark.parametrize("parse", [parse_label_selector, parse_field_selector])
def test_an_endless_selector_is_refused_unread(parse) -> None:
    with pytest.raises(ValueError, match="at most 16384 characters") as caught:
        parse("a," * 1_000_000)
    assert len(str(caught.value)) < 200
