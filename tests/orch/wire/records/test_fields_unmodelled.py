from __future__ import annotations

import pytest

from orch.wire.records import core, fields, pods
from orch.wire.records.kinds import RESOURCES


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda one: one.kind)
def test_every_kind_is_known_as_a_whole(resource) -> None:  # type: ignore[no-untyped-def]
    assert fields.fields_beyond(resource.model) is not None


def test_what_is_not_modelled_is_known_by_name() -> None:
    beyond = fields.fields_beyond(pods.PodSpec)
    assert beyond is not None
    assert {"schedulerName", "schedulingGates"} <= set(beyond)
    assert fields.fields_beyond(core.Taint) == ()


def test_an_unlisted_record_is_not_completely_known() -> None:
    assert fields.fields_beyond(core.NodeStatus) is None
    assert fields.fields_beyond(pods.PodStatus) is None
