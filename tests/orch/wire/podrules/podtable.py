"""Rows of tables about pods: what is changed in a valid pod, and what is then refused.

A refusal is written `path: text`, its path below the container's (or the spec's), its text cut off
where one likes. The rows are facts of the reference (K:pkg/apis/core/validation, whose tests show
them), in words of our own.
"""

from __future__ import annotations

from typing import Any

from orch.wire.podrules.validation import spec_causes

CONTAINER = {"name": "c", "image": "i"}
AT = "spec.containers[0]"


def container(**fields: Any) -> dict[str, Any]:
    """A valid spec whose container has these fields, too."""
    return {"containers": [{**CONTAINER, **fields}]}


def spec(**fields: Any) -> dict[str, Any]:
    return {"containers": [CONTAINER], **fields}


def init(**fields: Any) -> dict[str, Any]:
    return spec(initContainers=[{"name": "init", "image": "i", **fields}])


def refusals(document: dict[str, Any]) -> list[str]:
    return [f"{cause.field}: {cause.message}" for cause in spec_causes(document)]


def assert_refused(found: list[str], *beginnings: str, below: str = "") -> None:
    """Exactly these refusals, in any order."""
    expected = sorted(f"{below}.{beginning}" if below else beginning for beginning in beginnings)
    assert len(found) == len(expected), found
    for text, beginning in zip(sorted(found), expected, strict=True):
        assert text.startswith(beginning), found
