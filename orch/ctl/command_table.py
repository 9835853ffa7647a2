"""The table of commands: its words, the module that holds it, and one line on what it does.

`main` imports only the module of the command that runs; completion and the manual page read all of
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import argparse


class Verb(NamedTuple):
    """A command: its arguments, the action that returns the exit code, and examples."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    EXAMPLES: str


class Entry(NamedTuple):
    """A command, or with `below` a word that others follow.

    `verb` names its Verb in the module; "" where the module itself has its members. `advice` is
    shown for any other word than those below.
    """

    module: str
    text: str
    verb: str = ""
    below: Mapping[str, Entry] = MappingProxyType({})
    advice: str = ""

    def load(self) -> Verb:
        module = import_module(f"orch.ctl.{self.module}")
        found = getattr(module, self.verb) if self.verb else module
        return Verb(found.add_arguments, found.run, found.EXAMPLES)


_AUTH = {"can-i": Entry("settings.auth", "check whether an action is allowed, or list what is")}
_CERTIFICATE = {
    "approve": Entry("objects.certificate", "grant requests for certificates", "APPROVE"),
    "deny": Entry("objects.certificate", "refuse requests for certificates", "DENY"),
}
_TOKEN = {
    "create": Entry("objects.token", "make a token by which machines join", "CREATE"),
    "list": Entry("objects.token", "list these tokens, and when they end", "LIST"),
    "delete": Entry("objects.token", "end tokens before their time", "DELETE"),
}
_CHECKPOINT = {"list": Entry("nodes.checkpoint", "list the archives on nodes", "LIST")}
_CONFIG = {
    "view": Entry("settings.config", "show the kubeconfig in use, without its secrets", "VIEW"),
    "get-contexts": Entry("settings.config", "list the contexts", "GET_CONTEXTS"),
    "use-context": Entry("settings.config", "switch to another context", "USE_CONTEXT"),
}
_CREATE = {"token": Entry("objects.create", "print a token for a service account", "TOKEN")}
_NODE = {
    "top": Entry("nodes.top", "live table of nodes, pods and containers: CPU, memory, pressure"),
    "why": Entry("nodes.why", "who causes pressure on a node, and what to do about it"),
    "summary": Entry("nodes.node", "usage and pressure of a node and its pods", "SUMMARY"),
    "statusz": Entry("nodes.node", "build and uptime of the agent", "STATUSZ"),
    "flagz": Entry("nodes.node", "the flags the agent was started with", "FLAGZ"),
    "configz": Entry("nodes.node", "the configuration the agent runs with", "CONFIGZ"),
    "healthz": Entry("nodes.node", "whether the agent is healthy", "HEALTHZ"),
}
KUBECTLS = (
    "annotate api-resources api-versions attach autoscale cluster-info cp debug diff"
    " edit explain expose kustomize label options plugin port-forward proxy replace rollout"
    " run scale set taint"
)
ALIASES = {"use": "use-context"}  # of the words that follow another
COMMANDS: Mapping[str, Entry] = {
    "get": Entry("objects.get", "show objects"),
    "describe": Entry("describe.describe", "show objects in detail, with their events"),
    "events": Entry("objects.events", "show recent events"),
    "logs": Entry("objects.logs", "show the output of a container"),
    "exec": Entry("objects.exec", "run a command in a container"),
    "create": Entry(
        "objects.create", "create objects from files", "FILES", _CREATE,
        "give the objects with -f FILE, or 'token NAME'",
    ),
    "apply": Entry("objects.apply", "create objects from files, or change them to match"),
    "delete": Entry("objects.delete", "delete objects"),
    "patch": Entry("objects.patch", "change fields of an object"),
    "wait": Entry("objects.wait", "wait until objects reach a state"),
    "cordon": Entry("nodes.drain", "mark nodes as unschedulable", "CORDON"),
    "uncordon": Entry("nodes.drain", "mark nodes as schedulable", "UNCORDON"),
    "drain": Entry("nodes.drain", "evict the pods of nodes before maintenance", "DRAIN"),
    "node": Entry("", "ask a node's agent: its usage, its health, its settings", "", _NODE),
    "checkpoint": Entry(
        "nodes.checkpoint", "write a running container's state to an archive on its node",
        "CHECKPOINT", _CHECKPOINT,
    ),
    "certificate": Entry("", "decide on requests for certificates", "", _CERTIFICATE),
    "token": Entry("", "make and end the tokens by which machines join", "", _TOKEN),
    "auth": Entry("", "check what is allowed", "", _AUTH),
    "config": Entry("", "show the kubeconfig and switch contexts", "", _CONFIG),
    "metrics": Entry("nodes.metrics", "list the promised metrics, their tiers and programs"),
    "version": Entry("settings.version", "show the versions of this command and the server"),
    "completion": Entry("settings.completion", "print the completion script of a shell"),
}  # fmt: skip


def walk() -> Iterator[tuple[tuple[str, ...], Entry]]:
    """Every command that can be run, by its words."""
    for word, entry in COMMANDS.items():
        if entry.module:
            yield (word,), entry
        for lower, below in entry.below.items():
            yield (word, lower), below
