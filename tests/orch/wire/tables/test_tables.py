from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, get_args

import pytest

from orch.wire.tables.tables import IncludeObject, table_of

NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
NAMESPACE = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {
        "name": "default",
        "creationTimestamp": "2026-01-31T11:00:00Z",
        "labels": {"a": "b"},
    },
    "status": {"phase": "Active"},
}


def test_a_table_has_the_group_clients_have_compiled_in() -> None:
    table = table_of("Namespace", [NAMESPACE], NOW)
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Status", "Age"]
    assert table["rows"][0]["cells"] == ["default", "Active", "60m"]


def test_rows_embed_the_requested_part_of_the_object() -> None:
    embedded = {
        include: table_of("Namespace", [NAMESPACE], NOW, include_object=include)["rows"][0].get(
            "object"
        )
        for include in get_args(IncludeObject)
    }
    assert embedded == {
        "Metadata": {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": NAMESPACE["metadata"],
        },
        "Object": NAMESPACE,
        "None": None,
    }


def test_rows_do_not_say_who_set_which_field() -> None:
    recorded = {**NAMESPACE, "metadata": {**NAMESPACE["metadata"], "managedFields": [{}]}}
    rows = table_of("Namespace", [recorded], NOW)["rows"]
    assert rows == table_of("Namespace", [NAMESPACE], NOW)["rows"]
    whole = table_of("Namespace", [recorded], NOW, include_object="Object")["rows"]
    assert whole[0]["object"] == recorded


def test_the_list_s_own_metadata_is_carried() -> None:
    metadata = {"resourceVersion": "7", "continue": "x", "remainingItemCount": 3}
    assert table_of("Node", [], NOW, list_metadata=metadata)["metadata"] == metadata


def test_later_events_of_a_watch_repeat_no_columns() -> None:
    table = table_of("Namespace", [NAMESPACE], NOW, with_columns=False)
    assert table["columnDefinitions"] == []
    assert len(table["rows"]) == 1


@pytest.mark.parametrize(
    "kind",
    [
        "Pod",
        "Node",
        "Namespace",
        "Event",
        "Lease",
        "Role",
        "RoleBinding",
        "ClusterRole",
        "ClusterRoleBinding",
        "Secret",
        "",
    ],
)
@pytest.mark.parametrize(
    "record",
    [
        {},
        {"metadata": None, "spec": None, "status": None},
        {"metadata": {"name": 3, "labels": ["x"]}, "spec": [], "status": "broken"},
        {"spec": {"containers": None, "initContainers": "x"}, "status": {"conditions": [None, 1]}},
        {
            "status": {
                "containerStatuses": [{}],
                "initContainerStatuses": [{"state": 1}],
                "podIPs": [1],
            }
        },
        {"subjects": [{"kind": "Robot"}], "series": 1, "count": "many"},
    ],
)
def test_every_kind_shows_a_cell_per_column_however_broken_the_object(
    kind: str, record: dict[str, Any]
) -> None:
    table = table_of(kind, [record], NOW)
    cells = table["rows"][0]["cells"]
    assert len(cells) == len(table["columnDefinitions"])
    assert all(isinstance(cell, str | int) for cell in cells)
    assert sum(column["format"] == "name" for column in table["columnDefinitions"]) == 1
