from __future__ import annotations

from orch.server.strategy import configuration


def test_encoded_values_count_as_what_they_stand_for() -> None:
    encoded = {"a": "A" * (configuration.MAX_BYTES * 4 // 3)}
    assert list(configuration.size_causes("data", encoded)) == []
    assert [c.field for c in configuration.size_causes("data", {"b": "xxx"}, encoded)] == ["data"]


def test_text_counts_in_bytes() -> None:
    texts = {"a": "ä" * (configuration.MAX_BYTES // 2 + 1)}
    assert [c.reason for c in configuration.size_causes("data", texts, {})] == ["FieldValueTooLong"]
