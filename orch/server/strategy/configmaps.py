"""ConfigMaps: settings by name, as text or as base64; pure."""

from __future__ import annotations

from collections.abc import Iterator

from orch.server import fieldcauses as causes
from orch.server.strategy import datakeys
from orch.server.strategy.base import Document, Strategy
from orch.wire.errors import Cause
from orch.wire.kinds import CONFIG_MAPS


def _validate(new: Document, old: Document | None) -> list[Cause]:
    return [*_data_causes(new), *datakeys.frozen_causes(new, old, "data", "binaryData")]


def _data_causes(new: Document) -> Iterator[Cause]:
    texts, encoded = new.get("data") or {}, new.get("binaryData") or {}
    yield from datakeys.key_causes("data", texts)
    yield from datakeys.key_causes("binaryData", encoded)
    for key in texts.keys() & encoded.keys():
        yield causes.invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData")
    yield from datakeys.size_causes("data", texts, encoded)


STRATEGY = Strategy(CONFIG_MAPS, validate=_validate)
