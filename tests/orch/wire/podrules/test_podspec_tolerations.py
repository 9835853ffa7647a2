from __future__ import annotations

import pytest

from orch.wire.podrules.podspec import is_tolerated, tolerates
from orch.wire.records.core import Taint
from orch.wire.records.pods import Toleration

T = Toleration
TAINT = Taint(key="k", effect="NoExecute")
WITH_VALUE = Taint(key="k", value="v", effect="NoExecute")


@pytest.mark.parametrize(
    ("toleration", "taint", "expected"),
    [  # core/v1 toleration_test.go
        (T(key="k", operator="Exists", effect="NoExecute"), TAINT, True),
        (T(key="k", operator="Exists"), WITH_VALUE, True),
        (T(operator="Exists"), TAINT, True),
        (T(operator="Exists", effect="NoSchedule"), TAINT, False),
        (T(key="k", operator="Equal", value="v"), WITH_VALUE, True),
        (T(key="k", value="v", effect="NoExecute"), WITH_VALUE, True),
        (T(key="k", value="w"), WITH_VALUE, False),
        (T(key="k"), WITH_VALUE, False),
        (T(key="k"), TAINT, True),
        (T(key="x", operator="Exists"), TAINT, False),
        (T(operator="Equal"), TAINT, False),  # without a key only Exists matches
        (T(key="k", operator="Like", value="v"), WITH_VALUE, False),
    ],
)
def test_a_toleration_matches_key_effect_and_value(
    toleration: Toleration, taint: Taint, expected: bool
) -> None:
    assert tolerates(toleration, taint) is expected


def test_one_of_several_is_enough() -> None:
    assert is_tolerated(TAINT, [T(key="x", operator="Exists"), T(key="k")])
    assert not is_tolerated(TAINT, [T(key="x", operator="Exists")])
    assert not is_tolerated(TAINT, None)
