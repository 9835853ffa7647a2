"""Default roles and bindings reconciled with the stored ones, and aggregated roles filled; pure.

As apiserver §3.4: additions by others stay; missing parts are restored, unless the object has the
annotation `autoupdate: "false"`. An aggregated cluster role gets the rules of all that its
selectors match.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from orch.server.authz.cover import missing
from orch.server.authz.rules import record_of, rules_of
from orch.wire.names import ANNOTATION_AUTOUPDATE
from orch.wire.selectors import LabelSelector, label_selector_of

Document = dict[str, Any]


def is_protected(stored: Document) -> bool:
    annotations = stored["metadata"].get("annotations") or {}
    return bool(annotations.get(ANNOTATION_AUTOUPDATE) == "false")


def role(stored: Document, wanted: Document) -> Document:
    """The stored role completed with the parts of the wanted role that it lacks."""
    if is_protected(stored):
        return stored
    result = _with_metadata(stored, wanted)
    lacking = missing(rules_of(stored), rules_of(wanted))
    if lacking:
        result["rules"] = [*(stored.get("rules") or ()), *map(record_of, lacking)]
    if "aggregationRule" in wanted:
        result["aggregationRule"] = _aggregation(stored, wanted)
    else:
        result.pop("aggregationRule", None)
    return result


def binding(stored: Document, wanted: Document) -> Document | None:
    """The same for a binding; None when it must be recreated because its role is immutable."""
    if is_protected(stored):
        return stored
    if stored.get("roleRef") != wanted["roleRef"]:
        return None
    result = _with_metadata(stored, wanted)
    subjects = list(stored.get("subjects") or ())
    added = [subject for subject in wanted["subjects"] if subject not in subjects]
    if added:
        result["subjects"] = [*subjects, *added]
    return result


def _with_metadata(stored: Document, wanted: Document) -> Document:
    metadata = dict(stored["metadata"])
    for name in ("labels", "annotations"):
        metadata[name] = {**wanted["metadata"][name], **(metadata.get(name) or {})}
    return {**stored, "metadata": metadata}


def _aggregation(stored: Document, wanted: Document) -> Document:
    existing = list((stored.get("aggregationRule") or {}).get("clusterRoleSelectors") or ())
    needed = wanted["aggregationRule"]["clusterRoleSelectors"]
    return {"clusterRoleSelectors": existing + [s for s in needed if s not in existing]}


def is_aggregated(role: Document) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))


def aggregated_rules(role: Document, others: Iterable[Document]) -> list[Any]:
    """The rules of all cluster roles that its selectors match, each rule once.

    In the order of the selectors, then of names; `others` may include the role itself.
    """
    own = role["metadata"]["name"]
    ordered = sorted(others, key=lambda document: str(document["metadata"]["name"]))
    found: dict[bytes, Any] = {}
    for selector in selectors_of(role):
        for other in ordered:
            metadata = other["metadata"]
            if metadata["name"] != own and selector.matches(metadata.get("labels") or {}):
                for rule in other.get("rules") or ():
                    found.setdefault(orjson.dumps(rule, option=orjson.OPT_SORT_KEYS), rule)
    return list(found.values())


def selectors_of(role: Document) -> list[LabelSelector]:
    """Of an aggregated role."""
    return [label_selector_of(item) for item in role["aggregationRule"]["clusterRoleSelectors"]]
