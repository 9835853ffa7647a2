from __future__ import annotations

from orch.server.strategy import datakeys


def test_encoded_values_count_as_what_they_stand_for() -> None:
    encoded = {"a": "A" * (datakeys.MAX_BYTES * 4 // 3)}
    assert list(datakeys.size_causes("data", encoded)) == []
    assert [c.field for c in datakeys.size_causes("data", {"b": "xxx"}, encoded)] == ["data"]


def test_text_counts_in_bytes() -> None:
    texts = {"a": "ä" * (datakeys.MAX_BYTES // 2 + 1)}
    assert [c.reason for c in datakeys.size_causes("data", texts, {})] == ["FieldValueTooLong"]
