"""The configuration's words for the bounds."""

from __future__ import annotations

from pathlib import Path

import pyrage
import pytest

from nodeagent.archives import bounds
from nodeagent.archives.bounds import Bounds
from nodeagent.archives.encryption import EncryptionError
from nodeagent.config.types import CheckpointPolicy
from nodeagent.node.rules.pressure import Amount

DAY_S = 24 * 3600.0


def test_the_defaults_bound_everything() -> None:
    assert bounds.bounds_of(CheckpointPolicy()) == Bounds(
        per_container=10,
        per_pod=20,
        per_namespace=100,
        total=Amount(percent=20.0),
        age_s=7 * DAY_S,
        pod_gone_s=DAY_S,
        min_free=Amount(percent=12.0),
    )
    assert bounds.encryption_of(CheckpointPolicy()) is None


@pytest.mark.parametrize(("word", "gone_s"), [("Keep", None), ("Expire", 60.0), ("Delete", 0.0)])
def test_archives_of_deleted_pods_stay_expire_or_go(word: str, gone_s: float | None) -> None:
    chosen = CheckpointPolicy.model_validate({"deletedPods": word, "deletedPodsMaxAge": "1m"})

    assert bounds.bounds_of(chosen).pod_gone_s == gone_s


def test_bytes_may_be_a_quantity_and_nothing_is_no_bound() -> None:
    chosen = CheckpointPolicy.model_validate({"maxTotal": "10Gi", "minFree": "0", "maxAge": "0s"})

    found = bounds.bounds_of(chosen)

    assert (found.total, found.min_free, found.age_s) == (Amount(10 * 2**30), Amount(0), 0.0)


def test_recipients_are_read_and_checked(tmp_path: Path) -> None:
    key = str(pyrage.x25519.Identity.generate().to_public())
    good = CheckpointPolicy.model_validate({"encryption": {"recipients": [key]}})
    bad = CheckpointPolicy.model_validate({"encryption": {"recipientsFile": str(tmp_path / "x")}})

    assert bounds.encryption_of(good) is not None
    with pytest.raises(EncryptionError, match="cannot read the recipients"):
        bounds.encryption_of(bad)
