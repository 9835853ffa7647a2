"""Writes docs/metrics.md from the live pages of a local cluster.

    python -m tools.metrics_page .run

Families, types, texts and labels are taken from the pages of every program. A page shows labels
only where a series has them, so those that docs/metrics.md has already are kept; the labels of a
family without a series are added there by hand, and rows that no page has any more removed. The
column "since" is the release in which a row first appeared: that of this tree when it was written.
"""

from __future__ import annotations

import json
import re
import ssl
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from orch.wire import names

PAGE = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"
RELEASE = names.VERSION.removeprefix("v")
_TIERS = ("STABLE", "BETA", "ALPHA")
# Who answers (a key of cluster.json), and where.
PLACES: Mapping[str, tuple[str, str]] = {
    "nodeagent `/metrics`": ("nodeagent", "/metrics"),
    "nodeagent `/metrics/resource`": ("nodeagent", "/metrics/resource"),
    "nodeagent `/metrics/containerstats`": ("nodeagent", "/metrics/containerstats"),
    "nodeagent `/metrics/probes`": ("nodeagent", "/metrics/probes"),
    "orch-apiserver `/metrics`": ("apiserver", "/metrics"),
    "orch-controller-manager `/metrics`": ("controllerManager", "/metrics"),
    "Every program `/metrics/slis`": ("nodeagent", "/metrics/slis"),
}
_HEAD = ["metric", "type", "tier", "labels", "meaning", "since"]


@dataclass(frozen=True, slots=True)
class Family:
    """`kind` is Prometheus' type, `tier` "" for names that carry none."""

    name: str
    kind: str
    tier: str
    labels: frozenset[str]
    meaning: str
    since: str = ""

    def row(self) -> str:
        labels = ", ".join(f"`{label}`" for label in sorted(self.labels))
        cells = [f"`{self.name}`", self.kind, self.tier, labels, self.meaning, self.since]
        return f"| {' | '.join(cells)} |"


def families(page: str) -> Iterator[Family]:
    """What a page in Prometheus' text format declares."""
    # The parser takes `_total` from the names of counters; not all of the reference's have it.
    declared = re.findall(r"^# TYPE (\S+) ", page, re.MULTILINE)
    names = {name.removesuffix("_total"): name for name in declared}
    for family in text_string_to_metric_families(page):
        tier, found, meaning = family.documentation.removeprefix("[").partition("] ")
        if not (found and tier in _TIERS):
            tier, meaning = "", family.documentation
        labels = {label for sample in family.samples for label in sample.labels}
        if family.type == "histogram":
            labels.discard("le")
        elif family.type == "summary":
            labels.discard("quantile")
        meaning = " ".join(meaning.split()).replace("|", "\\|")
        name = names.get(family.name, family.name)
        yield Family(name, family.type, tier, frozenset(labels), meaning)


def documented(text: str) -> dict[str, dict[str, Family]]:
    """The tables of docs/metrics.md: heading → name → row."""
    tables: dict[str, dict[str, Family]] = {}
    heading = ""
    for line in text.splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        elif line.startswith("| `"):
            cells = [cell.strip() for cell in line.strip("|").replace("\\|", "\0").split("|")]
            name, kind, tier, labels, meaning, since = (c.replace("\0", "\\|") for c in cells)
            named = frozenset(label.strip("`") for label in labels.split(", ") if label)
            row = Family(name.strip("`"), kind, tier, named, meaning, since)
            tables.setdefault(heading, {})[row.name] = row
    return tables


def fetched(cluster: Mapping[str, str]) -> dict[str, list[Family]]:
    """The families of every page, by its heading; `cluster` is what cluster.json holds."""
    tls = ssl.create_default_context(cafile=cluster["caFile"])
    tls.load_cert_chain(cluster["clientCert"], cluster["clientKey"])
    found = {}
    for heading, (program, path) in PLACES.items():
        with urllib.request.urlopen(cluster[program] + path, context=tls, timeout=30) as answer:
            found[heading] = list(families(answer.read().decode()))
    return found


def updated(text: str, live: Mapping[str, list[Family]], release: str) -> str:
    """The page with the rows of `live`; what stands before each table is kept."""
    old = documented(text)
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("|"):
            continue
        if line.startswith("## ") and lines and lines[-1]:
            lines.append("")
        lines.append(line)
        heading = line.removeprefix("## ")
        if heading in live:
            rows = dict(old.get(heading, {}))
            for family in live[heading]:
                before = rows.get(family.name)
                labels = family.labels | (before.labels if before else frozenset())
                since = before.since if before else release
                rows[family.name] = replace(family, labels=labels, since=since)
            order = sorted(rows.values(), key=lambda row: row.name)
            rule = "|".join("---" for _ in _HEAD)
            lines += ["", f"| {' | '.join(_HEAD)} |", f"|{rule}|", *(row.row() for row in order)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines) + "\n")


def main(run_dir: str) -> None:
    cluster = json.loads((Path(run_dir) / "cluster.json").read_text())
    PAGE.write_text(updated(PAGE.read_text(), fetched(cluster), RELEASE))


if __name__ == "__main__":
    main(sys.argv[1])
