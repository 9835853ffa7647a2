from __future__ import annotations

from typing import Any

from orch.server.customresources.names import (
    MAX_BYTES,
    MAX_SERVED,
    Definition,
    decide,
    with_verdict,
)
from tests.orch.server.customresources.widgets import definition


def stored(plural: str, created: str = "1", size: int = 100, **names: Any) -> Definition:
    document = definition(plural, **names)
    given = document["spec"]["names"]
    given.setdefault("singular", plural.removesuffix("s"))
    given.setdefault("listKind", f"{given['kind']}List")
    document["metadata"]["creationTimestamp"] = created
    return Definition(document, size)


def test_the_older_definition_gets_a_name_and_who_has_it_keeps_it() -> None:
    old, new = stored("aas", "1", shortNames=["x"]), stored("bbs", "2", shortNames=["x"])
    for listed in ([old, new], [new, old]):
        namings = decide(listed)
        assert namings[old.name].conditions["Established"][0] == "True"
        assert namings[new.name].conditions["NamesAccepted"][:2] == ("False", "ShortNamesConflict")
        assert namings[new.name].names == {}
    held = Definition(with_verdict(new.document, decide([new])[new.name], "t"), 100)
    namings = decide([old, held])
    assert namings[held.name].conditions["NamesAccepted"][0] == "True"
    assert namings[old.name].conditions["Established"][0] == "False"
    assert decide([old])[old.name].names == old.document["spec"]["names"]


def test_kinds_conflict_within_a_group_only() -> None:
    one, other = stored("aas", kind="K"), stored("bbs", "2", kind="K")
    assert decide([one, other])[other.name].conditions["NamesAccepted"][1] == "KindConflict"
    other.document["spec"]["group"] = "other.com"
    assert decide([one, other])[other.name].names


def test_how_many_are_served_is_bounded() -> None:
    many = [stored(f"n{number:03}s", f"{number:03}") for number in range(MAX_SERVED + 1)]
    namings = decide(many)
    assert [name for name, naming in namings.items() if not naming.names] == [many[-1].name]
    assert namings[many[-1].name].conditions["Established"][1] == "TooManyDefinitions"
    large = stored("larges", "2", size=MAX_BYTES)
    assert not decide([stored("aas"), large])[large.name].names


def test_a_condition_keeps_the_time_of_its_last_transition() -> None:
    one = stored("aas")
    naming = decide([one])[one.name]
    first = with_verdict(one.document, naming, "t1")
    assert with_verdict(first, naming, "t2") == first
    assert {c["lastTransitionTime"] for c in first["status"]["conditions"]} == {"t1"}
