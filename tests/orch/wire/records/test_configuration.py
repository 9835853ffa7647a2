from __future__ import annotations

import pytest
from pydantic import ValidationError

from orch.wire.records.configuration import ConfigMap, Secret


@pytest.mark.parametrize("text", ["", "eA==", "/wA="])
def test_base64_is_kept_as_it_was_written(text: str) -> None:
    assert Secret.from_wire({"data": {"k": text}}).data == {"k": text}


@pytest.mark.parametrize("text", ["x", "ä", "eA=", "e A="])
def test_what_is_not_base64_is_named(text: str) -> None:
    with pytest.raises(ValidationError, match=r"binaryData\.k\s+Value error, is not base64"):
        ConfigMap.from_wire({"binaryData": {"k": text}})
