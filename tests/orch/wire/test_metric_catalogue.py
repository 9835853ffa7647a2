"""The catalogue holds every promised name once, and says truly which ones are exposed."""

import re
from functools import cache
from pathlib import Path

import pytest

from orch.wire import metric_catalogue as catalogue
from orch.wire.metric_catalogue import Entry

ROOT = Path(__file__).parents[3]


def test_the_counts_are_those_of_the_specification() -> None:
    tiers = [entry.tier for entry in catalogue.entries()]
    assert (tiers.count("STABLE"), tiers.count("BETA")) == (37, 26)


def test_every_name_stands_once_in_order() -> None:
    names = [entry.name for entry in catalogue.entries()]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[a-z_]+(_\*)?", name) for name in names)


def test_tiers_of_names_and_of_what_is_not_named() -> None:
    assert catalogue.tier_of("apiserver_request_total") == "STABLE"
    assert catalogue.tier_of("orch_feature_enabled") == "BETA"
    assert catalogue.tier_of("apiserver_something_else") == "ALPHA"


def test_nothing_that_is_outside_is_served() -> None:
    outside = [e for e in catalogue.entries() if e.owner.startswith(catalogue.OUTSIDE)]
    assert outside
    assert not [entry for entry in outside if entry.served]


def test_what_our_programs_do_not_expose_has_a_reason_and_nothing_else_has() -> None:
    unserved = [entry for entry in catalogue.entries() if not entry.served]
    own = [entry for entry in unserved if not entry.owner.startswith(catalogue.OUTSIDE)]
    assert own == [entry for entry in catalogue.entries() if entry.reason]


@cache
def words() -> set[str]:
    """Of all the code."""
    files = [*(ROOT / "nodeagent").rglob("*.py"), *(ROOT / "orch").rglob("*.py")]
    texts = (path.read_text() for path in files if path.name != "metric_catalogue.py")
    return {word for text in texts for word in re.findall(r"\w+", text)}


@cache
def named() -> set[str]:
    """What the code gives as the name of a metric, or of anything else that looks like one."""
    files = [*(ROOT / "nodeagent").rglob("*.py"), *(ROOT / "orch").rglob("*.py")]
    texts = (path.read_text() for path in files if path.name != "metric_catalogue.py")
    return {word for text in texts for word in re.findall(r'"([a-z]+_[a-z_]+)",', text)}


@pytest.mark.parametrize(
    "entry",
    [e for e in catalogue.entries() if e.tier == "ALPHA"],
    ids=lambda entry: entry.name,
)
def test_a_family_is_marked_as_served_exactly_when_the_code_names_one_of_it(entry: Entry) -> None:
    stem = entry.name.removesuffix("*").removesuffix("_total")
    found = {
        name for name in named() if name == stem or (stem[-1] == "_" and stem == name[: len(stem)])
    }
    assert entry.served is bool(found - NO_METRICS), found


NO_METRICS = {"storage_version"}


@pytest.mark.parametrize(
    "entry",
    [e for e in catalogue.entries() if e.tier != "ALPHA"],
    ids=lambda entry: entry.name,
)
def test_a_name_is_marked_as_served_exactly_when_the_code_has_it(entry: Entry) -> None:
    """Put a `+` before the name in orch/wire/metric_catalogue.py when you expose it."""
    stem = entry.name.removesuffix("_total")
    assert entry.served is not words().isdisjoint({stem, f"{stem}_total"})
