"""Labels of the node: the default ones, those an operator may add, and their repair; pure.

The keys of the reserved domain that `--node-labels` may set are the reference agent's
(cmd/kubelet/app/options, NodeRestriction): the default labels, and two prefixes.
"""

from __future__ import annotations

from collections.abc import Mapping

from orch.wire import names, validation

RESERVED_DOMAIN = "orch.io"
DEFAULT_KEYS = (
    names.LABEL_HOSTNAME,
    names.LABEL_OS,
    names.LABEL_ARCH,
    names.LABEL_ZONE,
    names.LABEL_REGION,
    names.LABEL_INSTANCE_TYPE,
)
ALLOWED_DOMAINS = ("nodeagent.orch.io", "node.orch.io")


def default_labels(hostname: str, operating_system: str, architecture: str) -> dict[str, str]:
    """The three of every node."""
    return {
        names.LABEL_HOSTNAME: hostname,
        names.LABEL_OS: operating_system,
        names.LABEL_ARCH: architecture,
    }


def provider_labels(zone: str, region: str, instance_type: str) -> dict[str, str]:
    """ "" means unknown: no label."""
    known = {
        names.LABEL_ZONE: zone,
        names.LABEL_REGION: region,
        names.LABEL_INSTANCE_TYPE: instance_type,
    }
    return {key: value for key, value in known.items() if value}


def node_label_problems(labels: Mapping[str, str]) -> list[str]:
    """One sentence per label that `--node-labels` must not set, or that is malformed."""
    problems = [problem for item in labels.items() for problem in _syntax_problems(*item)]
    refused = sorted(key for key in labels if not _may_set(key))
    if refused:
        problems.append(
            f"--node-labels must not set {', '.join(refused)}: in the domain {RESERVED_DOMAIN} "
            f"only {', '.join(DEFAULT_KEYS)} and keys of {', '.join(ALLOWED_DOMAINS)} are allowed"
        )
    return problems


def repairs(existing: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str | None]:
    """The change that gives an existing node the default labels of a new one; {} when it has them.

    A wanted empty value removes the label; labels that are not default ones are left alone.
    """
    changes = {key: wanted[key] or None for key in DEFAULT_KEYS if key in wanted}
    return {key: value for key, value in changes.items() if existing.get(key) != value}


def machine_labels(wanted: Mapping[str, str]) -> dict[str, str]:
    """Those of `wanted` that tell what the machine is: pods are chosen for it by them."""
    return {key: wanted[key] for key in (names.LABEL_OS, names.LABEL_ARCH) if key in wanted}


def _may_set(key: str) -> bool:
    domain, slash, _ = key.partition("/")
    if not slash or not _within(domain, RESERVED_DOMAIN):
        return True
    return key in DEFAULT_KEYS or any(_within(domain, allowed) for allowed in ALLOWED_DOMAINS)


def _within(domain: str, parent: str) -> bool:
    return domain == parent or domain.endswith("." + parent)


def _syntax_problems(key: str, value: str) -> list[str]:
    texts = [*validation.qualified_name_problems(key), *validation.label_value_problems(value)]
    return [f"--node-labels {key}={value}: {text}" for text in texts]
