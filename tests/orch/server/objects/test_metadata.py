from __future__ import annotations

import pytest

from orch.server.objects import metadata
from orch.wire.errors import ApiError
from orch.wire.records.kinds import NODES, PODS


def test_of_owners_with_the_same_uid_the_first_is_kept() -> None:
    first, second, other = ({"uid": "u", "name": "a"}, {"uid": "u", "name": "b"}, {"uid": "v"})
    document = {"metadata": {"ownerReferences": [first, second, other]}}
    (warning,) = metadata.drop_double_owners(document)
    assert warning.endswith("duplicate UID(s) observed: u")
    assert document == {"metadata": {"ownerReferences": [first, other]}}
    assert metadata.drop_double_owners(document) == []


@pytest.mark.parametrize("sent", [None, {}, {"ownerReferences": 5}, {"ownerReferences": [5]}, []])
def test_owners_of_no_shape_are_left_to_be_refused(sent) -> None:
    assert metadata.drop_double_owners({"metadata": sent}) == []


@pytest.mark.parametrize(
    ("resource", "sent", "fitted"),
    [
        (PODS, {}, {"namespace": "ns"}),
        (PODS, {"namespace": ""}, {"namespace": "ns"}),
        (PODS, {"namespace": "ns"}, {"namespace": "ns"}),
        (NODES, {"namespace": "other"}, {}),
    ],
)
def test_the_namespace_is_that_of_the_url(resource, sent, fitted) -> None:
    document = {"metadata": sent}
    metadata.fit_to_endpoint(resource, "ns", document)
    assert document["metadata"] == fitted


def test_an_empty_kind_is_one_that_is_not_said() -> None:
    document: dict = {"kind": "", "apiVersion": ""}
    metadata.fit_to_endpoint(PODS, "ns", document)
    assert (document["kind"], document["apiVersion"]) == ("Pod", "v1")
    for wrong in ({"kind": 0}, {"apiVersion": []}, {"kind": {}}):
        with pytest.raises(ApiError, match="does not match the expected"):
            metadata.fit_to_endpoint(PODS, "ns", wrong)


def test_a_missing_name_is_filled_in_from_the_url() -> None:
    document: dict = {"metadata": {}}
    metadata.fit_to_name("x", document)
    assert document["metadata"]["name"] == "x"


def test_a_generated_name_fits_into_a_label() -> None:
    assert metadata.generated_name("web-", "abcde") == "web-abcde"
    assert len(metadata.generated_name("x" * 100, "abcde")) == 63
