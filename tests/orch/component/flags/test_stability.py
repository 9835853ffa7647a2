"""Deprecation windows, hiding and label lists (reference/nodeagent.md §4.4)."""

import pytest

from orch.component.flags.stability import Release, is_hidden, parse_release, read_policy

V117 = Release(1, 17)
ALPHA118 = Release(1, 18, alpha0=True)

# the reference's table: level, deprecated in, current → hidden
WINDOWS = [
    ("INTERNAL", "1.17", V117, True),
    ("INTERNAL", "1.16", V117, True),
    ("INTERNAL", "1.18", V117, False),
    ("ALPHA", "1.17.0", V117, True),
    ("BETA", "1.17", V117, False),
    ("BETA", "1.16", V117, True),
    ("STABLE", "1.17", V117, False),
    ("STABLE", "1.15", V117, False),
    ("STABLE", "1.14", V117, True),
    ("INTERNAL", "1.18", ALPHA118, False),
    ("INTERNAL", "1.17", ALPHA118, True),
    ("STABLE", "1.15", ALPHA118, False),
    ("STABLE", "1.14", ALPHA118, True),
    ("STABLE", "0.99", V117, True),
    ("ALPHA", "2.0", V117, False),
    ("ALPHA", "", V117, False),
]


@pytest.mark.parametrize(("level", "deprecated", "current", "hidden"), WINDOWS)
def test_a_deprecated_metric_is_hidden_when_its_window_has_passed(
    level: str, deprecated: str, current: Release, hidden: bool
) -> None:
    assert is_hidden(level, deprecated, current) is hidden


RELEASES = [
    ("1.35", Release(1, 35)),
    ("v1.35.0+orch.1", Release(1, 35)),
    ("1.18.0-alpha.0", Release(1, 18, alpha0=True)),
    ("1.18.0-alpha.1", Release(1, 18)),
    ("1.29.0", Release(1, 29)),
]


@pytest.mark.parametrize(("text", "release"), RELEASES)
def test_a_release_is_read_from_a_version(text: str, release: Release) -> None:
    assert parse_release(text) == release


@pytest.mark.parametrize("text", ["", "1", "1.x", "one.two", "1.35 "])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a version"):
        parse_release(text)


def test_hidden_metrics_are_shown_for_the_previous_release_only() -> None:
    assert read_policy(show_hidden_for="1.16", current=V117).show_hidden is True
    for text in ("1.17", "1.15", "1.16.0", "v1.16", "x"):
        with pytest.raises(ValueError, match=r"only 1\.16 can be given"):
            read_policy(show_hidden_for=text, current=V117)


def test_being_disabled_wins_over_being_shown() -> None:
    policy = read_policy(disabled=[" a ", ""], show_hidden_for="1.16", current=V117)
    assert policy.fate("a", "STABLE", "1.0") == "disabled"
    assert policy.fate("b", "STABLE", "1.0") == "shown"
    assert read_policy(current=V117).fate("b", "STABLE", "1.0") == "hidden"
    assert read_policy(current=V117).fate("b", "STABLE", "") == "shown"


@pytest.mark.parametrize(
    "key",
    ["-metric_name,label_name", "metric_name,:label_name", "metric_name", "a,b,c", "", "a,b "],
)
def test_a_key_that_is_not_metric_and_label_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="is not METRIC,LABEL"):
        read_policy(allowed_labels={key: "x"})


def test_lists_of_label_values_are_read_per_metric_and_label() -> None:
    policy = read_policy(allowed_labels={"m,a": "x, y", "m,b": "z", "n:o,a": ""})
    assert policy.allowed == {
        "m": {"a": frozenset("xy"), "b": frozenset("z")},
        "n:o": {"a": frozenset([""])},
    }
