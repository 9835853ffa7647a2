"""The table of kinds: group, names, scope, record, subresources, and URL paths.

The API server routes by it, clients build their paths from it, `kubectl` discovers it. A new kind
is a new row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

from orch.wire.names import (
    ADMISSION_GROUP,
    AUTHENTICATION_GROUP,
    AUTHORIZATION_GROUP,
    CERTIFICATES_GROUP,
    COORDINATION_GROUP,
    EVENTS_GROUP,
    EXTENSIONS_GROUP,
    NODE_GROUP,
    RBAC_GROUP,
    SCHEDULING_GROUP,
)
from orch.wire.records.admission import (
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
)
from orch.wire.records.authentication import (
    CertificateSigningRequest,
    SelfSubjectReview,
    TokenReview,
)
from orch.wire.records.authorization import (
    LocalSubjectAccessReview,
    SelfSubjectAccessReview,
    SelfSubjectRulesReview,
    SubjectAccessReview,
)
from orch.wire.records.configuration import (
    ConfigMap,
    CustomResourceDefinition,
    Lease,
    LimitRange,
    PodTemplate,
    PriorityClass,
    ResourceQuota,
    RuntimeClass,
    Secret,
    ServiceAccount,
)
from orch.wire.records.core import Event, EventReport, Namespace, Node
from orch.wire.records.meta import ApiObject
from orch.wire.records.pods import Pod
from orch.wire.records.rbac import ClusterRole, ClusterRoleBinding, Role, RoleBinding
from orch.wire.stored_form import StoredForm

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@cache
def _kind_of(model: type[ApiObject]) -> str:
    return str(model.model_fields["kind"].default)


@dataclass(frozen=True)
class Resource:
    """A kind in the API; `subresources` are those with their own path. What follows from its fields
    is found out once, because every request asks for it.
    """

    group: str  # "" for the core group
    version: str
    plural: str
    singular: str
    model: type[ApiObject]
    namespaced: bool
    short_names: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    create_on_update: bool = False  # PUT to a missing name creates it
    unconditional_update: bool = True  # PUT without resourceVersion overwrites
    own_kind: str = ""  # where several kinds share the record
    own_list_kind: str = ""  # that of its lists, where it is not the kind and `List`
    stored_version: str = ""  # of its objects, where it has several versions
    other_versions: tuple[str, ...] = ()  # of the same objects, that are served
    schema: Mapping[str, Any] | None = field(default=None, compare=False)  # beyond the record
    stored_form: StoredForm | None = field(default=None, compare=False)  # that of another kind

    @cached_property
    def kind(self) -> str:
        return self.own_kind or _kind_of(self.model)

    @cached_property
    def list_kind(self) -> str:
        return self.own_list_kind or f"{self.kind}List"

    @cached_property
    def qualified(self) -> str:
        """`<plural>[.<group>]`, which tells kinds apart."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @cached_property
    def stored_name(self) -> str:
        """The qualified name of the kind as which its objects are stored."""
        return self.stored_form.qualified if self.stored_form else self.qualified

    @cached_property
    def is_converted(self) -> bool:
        """Whether objects are shown otherwise than they are stored."""
        return bool(self.stored_version or self.stored_form)

    @cached_property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def is_stored(self) -> bool:
        """Whether its objects are stored; reviews are only answered."""
        return "get" in self.verbs

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """URL path of the collection, or of one object, or of its subresource."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


NAMESPACES = Resource(
    "", "v1", "namespaces", "namespace", Namespace, False, ("ns",), ("status", "finalize"),
    verbs=tuple(v for v in ALL_VERBS if v != "deletecollection"),
)  # fmt: skip
NODES = Resource("", "v1", "nodes", "node", Node, False, ("no",), ("status", "proxy"))
PODS = Resource(
    "", "v1", "pods", "pod", Pod, True, ("po",),
    (
        "status", "attach", "binding", "ephemeralcontainers", "eviction", "exec", "log",
        "portforward", "resize",
    ),
    categories=("all",),
)  # fmt: skip
EVENTS = Resource("", "v1", "events", "event", Event, True, ("ev",), create_on_update=True)
EVENT_REPORTS = Resource(
    EVENTS_GROUP, "v1", "events", "event", EventReport, True, create_on_update=True,
    stored_form=StoredForm(
        EVENTS.qualified,
        EVENTS.api_version,
        {
            "regarding": "involvedObject",
            "note": "message",
            "reportingController": "reportingComponent",
            "deprecatedSource": "source",
            "deprecatedFirstTimestamp": "firstTimestamp",
            "deprecatedLastTimestamp": "lastTimestamp",
            "deprecatedCount": "count",
        },
    ),
)  # fmt: skip
LEASES = Resource(
    COORDINATION_GROUP, "v1", "leases", "lease", Lease, True,
    create_on_update=True, unconditional_update=False,
)  # fmt: skip

CONFIG_MAPS = Resource("", "v1", "configmaps", "configmap", ConfigMap, True, ("cm",))
SECRETS = Resource("", "v1", "secrets", "secret", Secret, True)
SERVICE_ACCOUNTS = Resource(
    "", "v1", "serviceaccounts", "serviceaccount", ServiceAccount, True, ("sa",), ("token",)
)
POD_TEMPLATES = Resource("", "v1", "podtemplates", "podtemplate", PodTemplate, True)
RESOURCE_QUOTAS = Resource(
    "", "v1", "resourcequotas", "resourcequota", ResourceQuota, True, ("quota",), ("status",)
)
LIMIT_RANGES = Resource("", "v1", "limitranges", "limitrange", LimitRange, True, ("limits",))
PRIORITY_CLASSES = Resource(
    SCHEDULING_GROUP, "v1", "priorityclasses", "priorityclass", PriorityClass, False, ("pc",)
)

RUNTIME_CLASSES = Resource(NODE_GROUP, "v1", "runtimeclasses", "runtimeclass", RuntimeClass, False)
SIGNING_REQUESTS = Resource(
    CERTIFICATES_GROUP, "v1", "certificatesigningrequests", "certificatesigningrequest",
    CertificateSigningRequest, False, ("csr",), ("approval", "status"),
)  # fmt: skip

CUSTOM_RESOURCE_DEFINITIONS = Resource(
    EXTENSIONS_GROUP, "v1", "customresourcedefinitions", "customresourcedefinition",
    CustomResourceDefinition, False, ("crd", "crds"), ("status",), ("api-extensions",),
)  # fmt: skip
VALIDATING_WEBHOOKS = Resource(
    ADMISSION_GROUP, "v1", "validatingwebhookconfigurations", "validatingwebhookconfiguration",
    ValidatingWebhookConfiguration, False, categories=("api-extensions",),
)  # fmt: skip
MUTATING_WEBHOOKS = Resource(
    ADMISSION_GROUP, "v1", "mutatingwebhookconfigurations", "mutatingwebhookconfiguration",
    MutatingWebhookConfiguration, False, categories=("api-extensions",),
)  # fmt: skip


def _rbac(model: type[ApiObject], *, namespaced: bool) -> Resource:
    name = _kind_of(model).lower()
    return Resource(RBAC_GROUP, "v1", f"{name}s", name, model, namespaced, create_on_update=True)


CLUSTER_ROLES = _rbac(ClusterRole, namespaced=False)
CLUSTER_ROLE_BINDINGS = _rbac(ClusterRoleBinding, namespaced=False)
ROLES = _rbac(Role, namespaced=True)
ROLE_BINDINGS = _rbac(RoleBinding, namespaced=True)


def _review(group: str, model: type[ApiObject], *, namespaced: bool = False) -> Resource:
    name = _kind_of(model).lower()
    return Resource(group, "v1", f"{name}s", name, model, namespaced, verbs=("create",))


SUBJECT_ACCESS_REVIEWS = _review(AUTHORIZATION_GROUP, SubjectAccessReview)
LOCAL_ACCESS_REVIEWS = _review(AUTHORIZATION_GROUP, LocalSubjectAccessReview, namespaced=True)
SELF_ACCESS_REVIEWS = _review(AUTHORIZATION_GROUP, SelfSubjectAccessReview)
SELF_RULES_REVIEWS = _review(AUTHORIZATION_GROUP, SelfSubjectRulesReview)
TOKEN_REVIEWS = _review(AUTHENTICATION_GROUP, TokenReview)
SELF_REVIEWS = _review(AUTHENTICATION_GROUP, SelfSubjectReview)
REVIEWS = (
    SUBJECT_ACCESS_REVIEWS,
    LOCAL_ACCESS_REVIEWS,
    SELF_ACCESS_REVIEWS,
    SELF_RULES_REVIEWS,
    TOKEN_REVIEWS,
    SELF_REVIEWS,
)

RESOURCES: tuple[Resource, ...] = (
    NAMESPACES, NODES, PODS, POD_TEMPLATES, EVENTS, CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS,
    RESOURCE_QUOTAS, LIMIT_RANGES, EVENT_REPORTS, LEASES, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS,
    ROLES, ROLE_BINDINGS, PRIORITY_CLASSES, RUNTIME_CLASSES, SIGNING_REQUESTS,
    CUSTOM_RESOURCE_DEFINITIONS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, *REVIEWS,
)  # fmt: skip
_BY_MODEL = {resource.model: resource for resource in RESOURCES}


def same_objects(resource: Resource) -> tuple[Resource, ...]:
    """The other kinds that have the same stored objects, each in a form of its own."""
    stored = resource.stored_name
    return tuple(each for each in RESOURCES if each.stored_name == stored and each != resource)


def resource_of(model: type[ApiObject]) -> Resource:
    """The row of a record class; KeyError for a class that is not served."""
    return _BY_MODEL[model]
