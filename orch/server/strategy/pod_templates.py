"""PodTemplates: pods to be, stored for programs that make them; pure.

A template is completed and checked as a pod that is created from it would be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from orch.server.strategy import pod_defaults
from orch.server.strategy.base import Document, Strategy
from orch.wire.errors import Cause
from orch.wire.podrules import validation
from orch.wire.records.kinds import POD_TEMPLATES


def _prepare(document: Document) -> None:
    template = document.get("template") or {}
    document["template"] = template
    pod_defaults.complete(template.setdefault("spec", {}))


def _prepare_update(new: Document, old: Document) -> None:
    _prepare(new)
    generation = int(old["metadata"].get("generation") or 1)
    changed = new["template"] != old.get("template")
    new["metadata"]["generation"] = generation + changed


def _prepare_create(document: Document) -> None:
    _prepare(document)
    document["metadata"]["generation"] = 1


def _validate(new: Document, old: Document | None) -> Iterator[Cause]:
    template = new["template"]
    if old is not None and template == old.get("template"):
        return
    metadata = template.get("metadata") or {}
    for cause in validation.creation_causes(metadata, template["spec"]):
        yield replace(cause, field=f"template.{cause.field}")


STRATEGY = Strategy(
    POD_TEMPLATES,
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    validate=_validate,
    returns_deleted=True,
)
