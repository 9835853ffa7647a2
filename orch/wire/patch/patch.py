"""Changing an object by a patch, in the three forms the API takes; pure, inputs stay untouched.

JSON merge patch (RFC 7386) is here; `json_patch` holds RFC 6902, `strategic_patch` the form that
knows merge keys. All raise PatchError; results share nothing with the target or the patch.
"""

from __future__ import annotations

from typing import Any

from orch.wire.patch.data import PatchError, check_depth, copied, equal
from orch.wire.patch.json_patch import apply_json_patch
from orch.wire.patch.strategic_patch import Schema, apply_strategic_patch

__all__ = [
    "PatchError",
    "Schema",
    "apply_json_patch",
    "apply_merge_patch",
    "apply_strategic_patch",
    "create_merge_patch",
]


def apply_merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386: objects merge, null removes, everything else replaces."""
    return _merged(target, patch, 0)


def _merged(target: Any, patch: Any, depth: int) -> Any:
    if not isinstance(patch, dict):
        return copied(patch, depth)
    check_depth(depth)
    kept = target if isinstance(target, dict) else {}
    result = {k: copied(v, depth + 1) for k, v in kept.items() if k not in patch}
    for key, value in patch.items():
        if value is not None:
            result[key] = _merged(kept.get(key), value, depth + 1)
    return {key: result[key] for key in (*kept, *patch) if key in result}


def create_merge_patch(old: Any, new: Any) -> Any:
    """The smallest merge patch that turns `old` into `new`; {} when nothing differs.

    A null inside `new` cannot be expressed and is left out, as the format demands.
    """
    return _difference(old, new, 0)


def _difference(old: Any, new: Any, depth: int) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return copied(new, depth)
    check_depth(depth)
    removed = {key: None for key in old if new.get(key) is None}
    changed = {
        key: _difference(old.get(key), value, depth + 1)
        for key, value in new.items()
        if value is not None and not (key in old and equal(old[key], value))
    }
    return {**removed, **changed}
