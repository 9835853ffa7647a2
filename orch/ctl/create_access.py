"""`orchctl create role|clusterrole|rolebinding|clusterrolebinding`: access rules from options.

`kubectl` makes them of its own groups only; these are of the group this service has.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from orch.ctl.api import Api
from orch.ctl.create_kinds import Record, verb
from orch.ctl.discovery import Discovery
from orch.ctl.failures import WrongUsage
from orch.wire.names import RBAC_GROUP

_API_VERSION = f"{RBAC_GROUP}/v1"


def _list_option(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    parser.add_argument(name, action="append", default=[], metavar="NAME,…", help=text)


def _add_rules(parser: argparse.ArgumentParser) -> None:
    _list_option(parser, "--verb", "what is allowed: get, list, watch, create, … or *")
    _list_option(
        parser, "--resource", "on which types: pods, pods/log, leases.coordination.orch.io"
    )
    _list_option(parser, "--resource-name", "only on objects of these names")


def _add_cluster_rules(parser: argparse.ArgumentParser) -> None:
    _add_rules(parser)
    _list_option(parser, "--aggregation-rule", "the rules of the cluster roles with these labels")
    _list_option(parser, "--non-resource-url", "on which paths: /metrics, /healthz/*")


def _listed(texts: Sequence[str]) -> list[str]:
    return [part for text in texts for part in text.split(",") if part]


async def _rules(args: argparse.Namespace, api: Api, discovery: Discovery) -> Record:
    verbs, urls = _listed(args.verb), _listed(getattr(args, "non_resource_url", []))
    resources = _listed(args.resource)
    labels = _listed(getattr(args, "aggregation_rule", []))
    if labels and not (verbs or resources or urls or args.resource_name):
        return {"aggregationRule": {"clusterRoleSelectors": [_labels(labels)]}, "rules": []}
    if labels or not verbs or bool(resources) == bool(urls):
        paths = " or --non-resource-url" if hasattr(args, "non_resource_url") else ""
        raise WrongUsage(f"say what is allowed and on what: --verb, and --resource{paths}")
    if urls:
        return {"rules": [{"verbs": verbs, "nonResourceURLs": urls}]}
    groups: dict[str, list[str]] = {}
    for text in resources:
        group, name = await _resource(text, discovery)
        groups.setdefault(group, []).append(name)
    names = {"resourceNames": _listed(args.resource_name)} if args.resource_name else {}
    return {
        "rules": [
            {"verbs": verbs, "apiGroups": [group], "resources": listed, **names}
            for group, listed in groups.items()
        ]
    }


def _labels(texts: Sequence[str]) -> Record:
    pairs = [text.partition("=") for text in texts]
    for text, (key, equals, _) in zip(texts, pairs, strict=True):
        if not key or not equals:
            raise WrongUsage(f"--aggregation-rule {text!r} is not LABEL=VALUE")
    return {"matchLabels": {key: value for key, _, value in pairs}}


async def _resource(text: str, discovery: Discovery) -> tuple[str, str]:
    """(group, `pods` or `pods/log`) of a word; CommandFailed for one the server does not know."""
    word, slash, subresource = text.partition("/")
    if word == "*":
        return "*", text
    found = await discovery.resolve(word)
    return found.group, f"{found.plural}{slash}{subresource}"


def _add_subjects(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clusterrole", default="", metavar="NAME", help="the role to grant")
    parser.add_argument(  # not the kubeconfig's user, as with other commands
        "--user", action="append", default=[], dest="subject_user", metavar="NAME,…",
        help="to these users",
    )  # fmt: skip
    _list_option(parser, "--group", "to these groups")
    _list_option(parser, "--serviceaccount", "to these service accounts: NAMESPACE:NAME")


def _add_role_subjects(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--role", default="", metavar="NAME", help="the role to grant")
    _add_subjects(parser)


async def _binding(args: argparse.Namespace, api: Api, discovery: Discovery) -> Record:
    role = getattr(args, "role", "")
    if bool(role) == bool(args.clusterrole):
        raise WrongUsage("say which role: --clusterrole, or in a namespace --role")
    kind = "Role" if role else "ClusterRole"
    subjects = [
        {"kind": kind_, "apiGroup": RBAC_GROUP, "name": name}
        for kind_, texts in (("User", args.subject_user), ("Group", args.group))
        for name in _listed(texts)
    ]
    for text in _listed(args.serviceaccount):
        namespace, colon, name = text.partition(":")
        if not colon or not namespace or not name:
            raise WrongUsage(f"--serviceaccount {text!r} is not NAMESPACE:NAME")
        subjects.append({"kind": "ServiceAccount", "namespace": namespace, "name": name})
    ref = {"apiGroup": RBAC_GROUP, "kind": kind, "name": role or args.clusterrole}
    return {"roleRef": ref, "subjects": subjects}


ROLE = verb(
    _API_VERSION, "Role", _rules,
    "orchctl create role reader --verb get,list --resource pods,pods/log -n shop", _add_rules,
)  # fmt: skip
CLUSTER_ROLE = verb(
    _API_VERSION, "ClusterRole", _rules,
    "orchctl create clusterrole scraper --verb get --non-resource-url /metrics",
    _add_cluster_rules,
)  # fmt: skip
ROLE_BINDING = verb(
    _API_VERSION, "RoleBinding", _binding,
    "orchctl create rolebinding readers --role reader --user jane --group ops -n shop",
    _add_role_subjects,
)  # fmt: skip
CLUSTER_ROLE_BINDING = verb(
    _API_VERSION, "ClusterRoleBinding", _binding,
    "orchctl create clusterrolebinding scrapers --clusterrole scraper --serviceaccount mon:prom",
    _add_subjects,
)  # fmt: skip
