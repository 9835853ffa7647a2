"""The pages about the code say what is there: files, headings, and the names of the index.

Checked are ARCHITECTURE.md, STYLE.md, README.md and docs/. A path may leave out leading folders
(`stats/sampler.py`); what operators have on their hosts (`config.yaml`, `/etc/…`) is not ours.
"""

from __future__ import annotations

import ast
import re
import statistics
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / name for name in ("ARCHITECTURE.md", "STYLE.md", "README.md")]
PAGES += sorted((ROOT / "docs").glob("*.md"))
MAP = ROOT / "docs" / "map.md"

OURS = ("deploy", "docs", "nodeagent", "orch", "systemd", "tests", "tools")
OUR_FILE = re.compile(r"[\w./-]+\.(?:py|md|proto|toml|svg)")
EXAMPLE = re.compile(r"^```.*?^```$|^    .*?$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\s]+)`")
WORD = re.compile(r"(?<![\w./…<>-])[\w./-]+\.(?:py|md)\b")
LINK = re.compile(r"\]\(([^)\s]+)\)")
ROW = re.compile(r"^\| [^|]+ \| `([\w./]+\.py)` \| (`[^|]+`) \|$", re.MULTILINE)
ENTRIES = ROW.findall(MAP.read_text())


@cache
def tree() -> frozenset[str]:
    """Every file and folder of ours, relative to the root."""
    top = [path for path in ROOT.glob("*.*") if path.is_file()]
    below = [path for name in OURS for path in (ROOT / name, *(ROOT / name).rglob("*"))]
    return frozenset(path.relative_to(ROOT).as_posix() for path in (*top, *below))


def exists(mention: str) -> bool:
    wanted = mention.rstrip("/")
    return wanted in tree() or any(path.endswith(f"/{wanted}") for path in tree())


def mentions(text: str) -> Iterator[str]:
    """Paths in backticks and in prose that can only be this tree's."""
    text = EXAMPLE.sub("", text)
    for word in CODE.findall(text):
        if word.startswith("/") or "…" in word or "<" in word or "*" in word:
            continue
        if OUR_FILE.fullmatch(word) or ("/" in word and word.split("/")[0] in OURS):
            yield word
    yield from WORD.findall(CODE.sub("", LINK.sub("", text)))


def headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    found = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    assert [word for word in mentions(page.read_text()) if not exists(word)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.findall(page.read_text()):
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        if "://" not in link and not (
            target.exists() and (not anchor or anchor in headings(target))
        ):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_a_page_opens_with_what_its_reader_can_do(page: Path) -> None:
    opening = page.read_text().split("\n\n")[1]
    assert opening.startswith(("With this page you ", "After this page "))


def test_every_page_is_linked() -> None:
    """A page that nothing links is found by nobody."""
    linked = {
        (page.parent / link.partition("#")[0]).resolve()
        for page in PAGES
        for link in LINK.findall(page.read_text())
        if not link.startswith("#")
    }
    assert [page.name for page in PAGES if page not in linked and page.name != "README.md"] == []


def test_the_index_is_read_whole() -> None:
    index = MAP.read_text().partition("## Index")[2]
    rows = [line for line in index.splitlines() if line.startswith("| ")]
    titles = [line for line in rows if line == "| behaviour | file | names |"]
    assert len(ENTRIES) == len(rows) - len(titles)
    assert len(ENTRIES) >= 60


@pytest.mark.parametrize(("path", "names"), ENTRIES, ids=[path for path, _ in ENTRIES])
def test_an_entry_of_the_index_is_true(path: str, names: str) -> None:
    assert (ROOT / path).is_file(), f"{path} is gone"
    there = set(names_in(ast.parse((ROOT / path).read_text())))
    missing = [name for name in CODE.findall(names) if name not in there]
    assert missing == [], f"{path} has no {', '.join(missing)}"


def names_in(tree: ast.Module) -> Iterator[str]:
    """Functions, classes, their methods (`Class.method`) and constants of a module."""
    for node in tree.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name
            case ast.ClassDef():
                yield node.name
                functions = (ast.FunctionDef, ast.AsyncFunctionDef)
                methods = [part.name for part in node.body if isinstance(part, functions)]
                yield from (f"{node.name}.{method}" for method in methods)
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see `stats/sampler.py` and STYLE.md", ["stats/sampler.py", "STYLE.md"]),
        ("a `/etc/nodeagent/config.yaml`, a `POD.yaml`, `<root-dir>/pods`", []),
        ("[page](docs/pods.md#x) and `tests/e2e/`", ["tests/e2e/"]),
        ("    an indented/example.md\n\n```\nfenced.md\n```\nout.md", ["out.md"]),
    ],
)
def test_a_mention_is_recognised(text: str, found: list[str]) -> None:
    assert list(mentions(text)) == found


def test_a_path_that_is_gone_is_noticed() -> None:
    assert exists("pods/decide/plan.py")
    assert not exists("pods/decide/no_such_plan.py")
    assert not exists("ecide/plan.py")


def own_files() -> list[Path]:
    """The product's modules, without generated stubs and empty files."""
    found = [path for root in ("nodeagent", "orch") for path in (ROOT / root).rglob("*.py")]
    return [path for path in found if "_pb2" not in path.name and path.stat().st_size]


def test_the_tree_keeps_its_measure() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in own_files()}
    # 400 modules and 57,500 lines of the house, and what capabilities since have added.
    assert len(lines) <= 561
    assert sum(lines.values()) <= 97_500
    assert max(lines.values()) <= 400
    assert statistics.median(lines.values()) >= 130
    assert Counter(path.parent for path in lines).most_common(1)[0][1] <= 16
    orchctl = ROOT / "orch" / "ctl"
    of_orchctl = sum(count for path, count in lines.items() if orchctl in path.parents)
    assert of_orchctl <= 6800  # 5600 of the house, `exec`, applying, and the reasons of `node why`


def test_a_module_says_what_it_is_and_does_not_open_with_what() -> None:
    others = [path for root in ("tests", "tools") for path in (ROOT / root).rglob("*.py")]
    asking = [
        str(path.relative_to(ROOT))
        for path in (*own_files(), *others)
        if path.read_text().startswith('"""What ')
    ]
    assert asking == []


@pytest.mark.parametrize(
    "program", ["nodeagent", "orch/server", "orch/lifecycle", "orch/ctl", "orch/up"]
)
def test_no_two_classes_of_a_program_share_a_name(program: str) -> None:
    named = Counter(
        node.name
        for path in own_files()
        if ROOT / program in path.parents
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in named.items() if count > 1] == []
