"""The field numbers of the kinds that clients send in protobuf; data.

They are upstream's (reference/apiserver.md §1.6), and so are the names of fields: requests under
the reference's group names are the only ones that some of these kinds come in.

The field numbers of a Pod, read from the table in `protobufpods.txt`.

A Pod is read whole, its status too: what were skipped would be lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

from orch.server.request import protobuf_wire as wire
from orch.server.request.protobuf_wire import (
    Field,
    Message,
    bytes_pair,
    flag,
    int64,
    message,
    micro_time,
    pair,
    text,
    texts_pair,
    time,
)

_OWNER = {
    1: Field("kind", text), 3: Field("name", text), 4: Field("uid", text),
    5: Field("apiVersion", text), 6: Field("controller", flag),
    7: Field("blockOwnerDeletion", flag),
}  # fmt: skip
OBJECT_META = {
    1: Field("name", text),
    2: Field("generateName", text),
    3: Field("namespace", text),
    5: Field("uid", text),
    6: Field("resourceVersion", text),
    7: Field("generation", int64),
    8: Field("creationTimestamp", time),
    9: Field("deletionTimestamp", time),
    10: Field("deletionGracePeriodSeconds", int64),
    11: Field("labels", pair, pairs=True),
    12: Field("annotations", pair, pairs=True),
    13: Field("ownerReferences", message(_OWNER), many=True),
    14: Field("finalizers", text, many=True),
}
METADATA = Field("metadata", message(OBJECT_META))
_PRECONDITIONS = {1: Field("uid", text), 2: Field("resourceVersion", text)}
_DELETE_OPTIONS = {
    1: Field("gracePeriodSeconds", int64),
    2: Field("preconditions", message(_PRECONDITIONS)),
    3: Field("orphanDependents", flag),
    4: Field("propagationPolicy", text),
    5: Field("dryRun", text, many=True),
}
_NAMESPACE = {
    1: METADATA,
    2: Field("spec", message({1: Field("finalizers", text, many=True)})),
    3: Field("status", message({1: Field("phase", text)})),
}
_LEASE_SPEC = {
    1: Field("holderIdentity", text),
    2: Field("leaseDurationSeconds", int64),
    3: Field("acquireTime", micro_time),
    4: Field("renewTime", micro_time),
    5: Field("leaseTransitions", int64),
    6: Field("strategy", text),
    7: Field("preferredHolder", text),
}
_BINDING_TARGET = {
    1: Field("kind", text), 2: Field("namespace", text), 3: Field("name", text),
    4: Field("uid", text), 5: Field("apiVersion", text),
}  # fmt: skip
_SELECTOR_REQUIREMENT = {
    1: Field("key", text), 2: Field("operator", text), 3: Field("values", text, many=True),
}  # fmt: skip
_SELECTOR_ATTRIBUTES = {
    1: Field("rawSelector", text),
    2: Field("requirements", message(_SELECTOR_REQUIREMENT), many=True),
}
_RESOURCE_ATTRIBUTES = {
    1: Field("namespace", text),
    2: Field("verb", text),
    3: Field("group", text),
    4: Field("version", text),
    5: Field("resource", text),
    6: Field("subresource", text),
    7: Field("name", text),
    8: Field("fieldSelector", message(_SELECTOR_ATTRIBUTES)),
    9: Field("labelSelector", message(_SELECTOR_ATTRIBUTES)),
}
_ATTRIBUTES = {
    1: Field("resourceAttributes", message(_RESOURCE_ATTRIBUTES)),
    2: Field("nonResourceAttributes", message({1: Field("path", text), 2: Field("verb", text)})),
}
_SELF_ACCESS_REVIEW = {1: METADATA, 2: Field("spec", message(_ATTRIBUTES))}
_SUBJECT_REVIEW_SPEC = {
    **_ATTRIBUTES,
    3: Field("user", text),
    4: Field("groups", text, many=True),
    5: Field("extra", texts_pair, pairs=True),
    6: Field("uid", text),
}
_SUBJECT_ACCESS_REVIEW = {1: METADATA, 2: Field("spec", message(_SUBJECT_REVIEW_SPEC))}
_RULES_REVIEW = {1: METADATA, 2: Field("spec", message({1: Field("namespace", text)}))}
_TOKEN_REVIEW_SPEC = {1: Field("token", text), 2: Field("audiences", text, many=True)}
_BOUND_OBJECT = {
    1: Field("kind", text), 2: Field("apiVersion", text), 3: Field("name", text),
    4: Field("uid", text),
}  # fmt: skip
_TOKEN_REQUEST_SPEC = {
    1: Field("audiences", text, many=True),
    3: Field("boundObjectRef", message(_BOUND_OBJECT)),
    4: Field("expirationSeconds", int64),
}
_RULE = {
    number: Field(name, text, many=True)
    for number, name in enumerate(
        ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs"), start=1
    )
}
LABEL_SELECTOR = {
    1: Field("matchLabels", pair, pairs=True),
    2: Field("matchExpressions", message(_SELECTOR_REQUIREMENT), many=True),
}
_AGGREGATION = {1: Field("clusterRoleSelectors", message(LABEL_SELECTOR), many=True)}
_ROLE = {
    1: METADATA,
    2: Field("rules", message(_RULE), many=True),
    3: Field("aggregationRule", message(_AGGREGATION)),
}
_SUBJECT = {
    1: Field("kind", text), 2: Field("apiGroup", text), 3: Field("name", text),
    4: Field("namespace", text),
}  # fmt: skip
_ROLE_REF = {1: Field("apiGroup", text), 2: Field("kind", text), 3: Field("name", text)}
_BINDING = {
    1: METADATA,
    2: Field("subjects", message(_SUBJECT), many=True),
    3: Field("roleRef", message(_ROLE_REF)),
}
_OBJECT_REFERENCE = {
    **_BINDING_TARGET, 6: Field("resourceVersion", text), 7: Field("fieldPath", text),
}  # fmt: skip
_CONFIG_MAP = {
    1: METADATA,
    2: Field("data", pair, pairs=True),
    3: Field("binaryData", bytes_pair, pairs=True),
    4: Field("immutable", flag),
}
_SECRET = {
    1: METADATA,
    2: Field("data", bytes_pair, pairs=True),
    3: Field("type", text),
    4: Field("stringData", pair, pairs=True),
    5: Field("immutable", flag),
}
_SERVICE_ACCOUNT = {
    1: METADATA,
    2: Field("secrets", message(_OBJECT_REFERENCE), many=True),
    3: Field("imagePullSecrets", message({1: Field("name", text)}), many=True),
    4: Field("automountServiceAccountToken", flag),
}
KINDS: Mapping[str, Message] = {
    "SelfSubjectAccessReview": _SELF_ACCESS_REVIEW,
    "SubjectAccessReview": _SUBJECT_ACCESS_REVIEW,
    "LocalSubjectAccessReview": _SUBJECT_ACCESS_REVIEW,
    "SelfSubjectRulesReview": _RULES_REVIEW,
    "SelfSubjectReview": {1: METADATA},
    "TokenReview": {1: METADATA, 2: Field("spec", message(_TOKEN_REVIEW_SPEC))},
    "TokenRequest": {1: METADATA, 2: Field("spec", message(_TOKEN_REQUEST_SPEC))},
    "Role": _ROLE,
    "ClusterRole": _ROLE,
    "RoleBinding": _BINDING,
    "ClusterRoleBinding": _BINDING,
    "ConfigMap": _CONFIG_MAP,
    "Secret": _SECRET,
    "ServiceAccount": _SERVICE_ACCOUNT,
    "Eviction": {1: METADATA, 2: Field("deleteOptions", message(_DELETE_OPTIONS))},
    "Namespace": _NAMESPACE,
    "DeleteOptions": _DELETE_OPTIONS,
    "Lease": {1: METADATA, 2: Field("spec", message(_LEASE_SPEC))},
    "Binding": {1: METADATA, 2: Field("target", message(_BINDING_TARGET))},
}

_SCALARS: Mapping[str, Callable[[Any], Any]] = {
    "": wire.text,
    "int": lambda value: wire.int64(value) or None,
    "int?": wire.int64,
    "flag": lambda value: wire.flag(value) or None,
    "flag?": wire.flag,
    "time": wire.time,
    "quantity": wire.quantity,
    "intOrString": wire.int_or_text,
}
_PAIRS: Mapping[str, Callable[[Any], Any]] = {"texts": wire.pair, "quantities": wire.quantity_pair}
_FIELD = re.compile(r"(\w*)=(\d+)(?::(\w+\??))?(\*?)")


@cache
def pod() -> Message:
    """The table of a Pod. Reads the package's file once."""
    lines = resources.files("orch.server").joinpath("protobufpods.txt").read_text("ascii")
    written = "\n".join(line for line in lines.splitlines() if not line.startswith("#"))
    fields = dict(re.findall(r"^(\w+): (.*(?:\n  .*)*)", written, re.MULTILINE))
    messages: dict[str, dict[int, Field]] = {name: {} for name in fields}
    known = {"LabelSelector": LABEL_SELECTOR, "ObjectMeta": OBJECT_META, **messages}
    for name, fields_of in messages.items():
        fields_of.update(_fields(fields[name], known))
    return {
        1: METADATA,
        2: Field("spec", wire.message(messages["PodSpec"])),
        3: Field("status", wire.message(messages["PodStatus"])),
    }


def _fields(written: str, messages: Mapping[str, Message]) -> Iterator[tuple[int, Field]]:
    for name, number, kind, many in _FIELD.findall(written):
        if kind in _PAIRS:
            yield int(number), Field(name, _PAIRS[kind], pairs=True)
        else:
            read = _SCALARS.get(f"{kind}?" if many else kind) or _SCALARS.get(kind)
            yield int(number), Field(name, read or wire.message(messages[kind]), many=bool(many))
