"""`orchctl auth can-i`: whether you may do something, or with `--list` all that you may do."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from orch.ctl import failures, forms, permissions, printing, session
from orch.ctl.api import Api, given
from orch.ctl.discovery import Discovery
from orch.ctl.failures import CommandFailed, WrongUsage, visible
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
_PATH = f"/apis/{AUTHORIZATION_GROUP}/v1"
_SUBRESOURCES = (
    "attach", "binding", "checkpoint", "configz", "eviction", "exec", "finalize", "healthz", "log",
    "metrics", "pods", "portforward", "proxy", "scale", "stats", "status", "token",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="VERB TYPE[/NAME]|PATH", help="what to do")
    parser.add_argument("--subresource", default="", help="to this part: log, status, checkpoint")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="in every namespace")
    parser.add_argument("-q", "--quiet", action="store_true", help="only the exit code")
    parser.add_argument("--list", action="store_true", help="all that is allowed")
    parser.add_argument("--no-headers", action="store_true", help="with --list: only the rows")
    forms.add_to(parser, forms.DATA)


def run(args: argparse.Namespace) -> int:
    if args.list:
        if args.words:
            raise WrongUsage("--list shows everything: leave the verb and the type out")
        return session.run(args, _list)
    if len(args.words) not in (2, 3):
        raise WrongUsage("say what to do to what: VERB TYPE, VERB TYPE/NAME or VERB /PATH")
    return session.run(args, _ask)


async def _ask(api: Api, args: argparse.Namespace) -> int:
    verb, word, *names = args.words
    if word.startswith("/"):
        spec = {"nonResourceAuthorizationAttributes": {"path": word, "verb": verb}}
    else:
        attributes = await _attributes(api, verb, word, names, args)
        spec = {"resourceAuthorizationAttributes": attributes}
    answer = await _review(api, "SelfSubjectAccessReview", "selfsubjectaccessreviews", spec)
    allowed = raw.value(answer, "status", "allowed") is True
    if args.output:
        forms.show(args.output, answer)
    elif not args.quiet:
        reasons = (raw.text(answer, "status", key) for key in ("reason", "evaluationError"))
        why = " - ".join(reason for reason in reasons if reason) if not allowed else ""
        print(visible(f"{'yes' if allowed else 'no'}{f' - {why}' if why else ''}"))
    return 0 if allowed else failures.FAILED


async def _attributes(
    api: Api, verb: str, word: str, names: list[str], args: argparse.Namespace
) -> dict[str, str]:
    """What is asked about a resource; a type the server does not have is asked about as it is."""
    kind, slash, name = word.partition("/")
    name = name if slash else "".join(names)
    if slash and name in _SUBRESOURCES and not args.subresource:
        printing.note(
            f"Note: this is about an object called {name!r}; for the subresource say "
            f"--subresource {name}"
        )
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
    spec = {"namespace": api.namespace}
    answer = await _review(api, "SelfSubjectRulesReview", "selfsubjectrulesreviews", spec)
    if args.output:
        forms.show(args.output, answer)
        return 0
    header = [] if args.no_headers else [permissions.HEADER]
    members = ("resourceRules", "nonResourceRules")
    rules = [rule for member in members for rule in raw.records(answer, "status", member)]
    print("\n".join(printing.columns([*header, *permissions.rows(rules)])))
    if raw.value(answer, "status", "incomplete") is True:
        why = raw.text(answer, "status", "evaluationError")
        printing.note(f"Warning: the list may be incomplete{f': {why}' if why else ''}")
    return 0


async def _review(api: Api, kind: str, plural: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    body = {"apiVersion": f"{AUTHORIZATION_GROUP}/v1", "kind": kind, "spec": spec}
    return await api.send("POST", f"{_PATH}/{plural}", body)
