"""How configuration documents merge (spec.md, "Node agent configuration merging"); pure.

A later document's scalars override, structures and maps merge key by key, lists replace whole, and
null deletes the key: JSON merge patch (RFC 7386) on the documents as written, before any default is
applied, so that a file never resets what it does not mention.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from orch.wire.patch import apply_merge_patch


def merge_documents(base: dict[str, Any], documents: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The base with every document applied in order; the result shares nothing with them."""
    merged: Any = apply_merge_patch(base, {})
    for document in documents:
        merged = apply_merge_patch(merged, document)
    return dict(merged)
