"""`orchctl auth can-i`: whether you may do something, or with `--list` everything you may do."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any

from orch.client.transport import given
from orch.component.terminal import visible
from orch.ctl import api, failures, selection
from orch.ctl.api import Api
from orch.ctl.discovery import Discovery
from orch.ctl.failures import CommandFailed, WrongUsage
from orch.ctl.output import formats, printing
from orch.wire import raw
from orch.wire.names import AUTHORIZATION_GROUP

EXAMPLES = """
orchctl auth can-i create pods -n shop
orchctl auth can-i get nodes/worker-1
orchctl auth can-i create nodes --subresource checkpoint
orchctl auth can-i get /metrics
orchctl auth can-i delete pods --as jane --quiet
orchctl auth can-i --list
"""
_SUBRESOURCES = (
    "attach", "binding", "checkpoint", "configz", "eviction", "exec", "finalize", "healthz", "log",
    "metrics", "pods", "portforward", "proxy", "scale", "stats", "status", "token",
)  # fmt: skip
_HEADER = ("Resources", "Non-Resource URLs", "Resource Names", "Verbs")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="VERB TYPE[/NAME]|PATH", help="the action")
    parser.add_argument("--subresource", default="", help="of this part: log, status, checkpoint")
    selection.add_all_namespaces(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="only the exit code")
    parser.add_argument("--list", action="store_true", help="list everything that is allowed")
    parser.add_argument("--no-headers", action="store_true", help="with --list: only the rows")
    formats.add_to(parser, formats.DATA)


def run(args: argparse.Namespace) -> int:
    if args.list:
        if args.words:
            raise WrongUsage("--list shows everything: leave the verb and the type out")
        return api.run(args, _list)
    if len(args.words) not in (2, 3):
        raise WrongUsage("give an action: VERB TYPE, VERB TYPE/NAME or VERB /PATH")
    return api.run(args, _ask)


async def _ask(api: Api, args: argparse.Namespace) -> int:
    verb, word, *names = args.words
    if word.startswith("/"):
        spec = {"nonResourceAuthorizationAttributes": {"path": word, "verb": verb}}
    else:
        attributes = await _attributes(api, verb, word, names, args)
        spec = {"resourceAuthorizationAttributes": attributes}
    answer = await _review(api, "SelfSubjectAccessReview", spec)
    allowed = raw.value(answer, "status", "allowed") is True
    if args.output:
        formats.show(args.output, answer)
    elif not args.quiet:
        reasons = (raw.text(answer, "status", key) for key in ("reason", "evaluationError"))
        why = " - ".join(reason for reason in reasons if reason) if not allowed else ""
        print(visible(f"{'yes' if allowed else 'no'}{f' - {why}' if why else ''}"))
    return 0 if allowed else failures.FAILED


async def _attributes(
    api: Api, verb: str, word: str, names: list[str], args: argparse.Namespace
) -> dict[str, str]:
    """The attributes of the question; a type the server does not know is asked about as given."""
    kind, slash, name = word.partition("/")
    name = name if slash else "".join(names)
    if slash and name in _SUBRESOURCES and not args.subresource:
        printing.note(f"Note: {name!r} names an object; for the subresource: --subresource {name}")
    namespace = "" if args.all_namespaces else api.namespace
    group, plural = "", kind
    if kind == "*":
        group = "*"
    else:
        try:
            resource = await Discovery(api).resolve(kind)
        except CommandFailed as error:
            printing.note(f"Warning: {error}")
            plural, _, group = kind.partition(".")
        else:
            group, plural = resource.group, resource.plural
            namespace = namespace if resource.namespaced else ""
    return given(
        namespace=namespace, verb=verb, group=group, resource=plural,
        subresource=args.subresource, name=name,
    )  # fmt: skip


async def _list(api: Api, args: argparse.Namespace) -> int:
    answer = await _review(api, "SelfSubjectRulesReview", {"namespace": api.namespace})
    if args.output:
        formats.show(args.output, answer)
        return 0
    header = [] if args.no_headers else [_HEADER]
    members = ("resourceRules", "nonResourceRules")
    rules = [rule for member in members for rule in raw.records(answer, "status", member)]
    print("\n".join(printing.columns([*header, *rule_rows(rules)])))
    if raw.value(answer, "status", "incomplete") is True:
        why = raw.text(answer, "status", "evaluationError")
        printing.note(f"Warning: the list may be incomplete{f': {why}' if why else ''}")
    return 0


async def _review(api: Api, kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    body = {"apiVersion": f"{AUTHORIZATION_GROUP}/v1", "kind": kind, "spec": spec}
    return await api.send("POST", f"/apis/{AUTHORIZATION_GROUP}/v1/{kind.lower()}s", body)


def rule_rows(rules: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """A row for each resource with all its verbs, and for each verb of a path, as in kubectl."""
    verbs_of: dict[tuple[str, str, str], list[str]] = {}
    rows: list[tuple[str, str, str, str, str]] = []
    for rule in rules:
        verbs, groups, resources, names, paths = (
            [str(text) for text in raw.value(rule, key) or []]
            for key in ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")
        )
        for verb, group, resource, name in product(verbs, groups, resources, names or [""]):
            known = verbs_of.setdefault((group, resource, name), [])
            if verb not in known:
                known.append(verb)
        rows += [(verb, "", "", "", path) for verb, path in product(verbs, paths)]
    rows += [(" ".join(verbs), *key, "") for key, verbs in verbs_of.items()]
    # In the order of the rules' texts: k8s.io/component-helpers/auth/rbac/validation.
    return [_cells(*row) for row in sorted(rows, key=lambda row: "".join(f"[{c}]," for c in row))]


def _cells(verbs: str, group: str, resource: str, name: str, path: str) -> tuple[str, ...]:
    """The resource as `pods/log`, `leases.coordination.orch.io/status`, and the rest."""
    plural, slash, subresource = resource.partition("/")
    full = f"{plural}{f'.{group}' if group else ''}{slash}{subresource}"
    return (full, f"[{path}]", f"[{name}]", f"[{verbs}]")
