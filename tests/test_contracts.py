"""Every import contract of pyproject.toml is kept, and breaks on each violation planted here.

The graph of imports is built once; violations are planted in it, never in the source. They are
derived from the contracts themselves: a contract of a type that PLANTS does not know fails.
"""

from __future__ import annotations

import copy
import importlib.util
import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import cycle, permutations
from pathlib import Path
from typing import Any

import grimp
import pytest
from importlinter import Contract
from importlinter.api import read_configuration
from importlinter.contracts.acyclic_siblings import AcyclicSiblingsContract
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.layers import LayersContract
from importlinter.contracts.protected import ProtectedContract

ROOT = Path(__file__).resolve().parents[1]
CONFIGURATION = read_configuration(str(ROOT / "pyproject.toml"))
SESSION: dict[str, Any] = CONFIGURATION["session_options"]
ROOTS: list[str] = SESSION["root_packages"]

Options = dict[str, Any]
Edge = tuple[str, str]  # importer, imported
Violation = tuple[Edge, ...]


@cache
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(
        *ROOTS,
        include_external_packages=True,
        exclude_type_checking_imports=SESSION["exclude_type_checking_imports"] == "True",
        cache_dir=None,
    )


def package(module: str) -> set[str]:
    """The module and what lies below it; a foreign package is one module."""
    if module not in graph().modules or graph().is_module_squashed(module):
        return {module}
    return {module} | graph().find_descendants(module)


def own_modules() -> list[str]:
    return sorted(module for root in ROOTS for module in package(root))


def a_leaf(module: str) -> str:
    """Some module in the package that is no package itself."""
    return max(sorted(package(module)), key=lambda name: name.count("."))


def against_layers(options: Options) -> Iterator[Violation]:
    """Each layer imports each one above it, and each package each other one beside it."""
    layers = [[name.strip() for name in layer.split("|")] for layer in options["layers"]]
    for depth, layer in enumerate(layers):
        above = [name for upper in layers[:depth] for name in upper]
        for lower in layer:
            yield from (((a_leaf(lower), a_leaf(upper)),) for upper in above)
        yield from (((a_leaf(one), a_leaf(other)),) for one, other in permutations(layer, 2))


def against_acyclic_siblings(options: Options) -> Iterator[Violation]:
    """In every folder, two neighbours that import each other."""
    skipped = {name for root in options.get("skip_descendants", ()) for name in package(root)}
    folders = {name for root in options["ancestors"] for name in package(root)} - skipped
    for folder in sorted(folders):
        children = sorted(graph().find_children(folder))
        if len(children) > 1:
            one, other = a_leaf(children[0]), a_leaf(children[-1])
            yield (one, other), (other, one)


def against_protected(options: Options) -> Iterator[Violation]:
    """From each root, a module without leave imports each module behind the door."""
    inside = {
        name
        for one in (*options["protected_modules"], *options["allowed_importers"])
        for name in package(one)
    }
    strangers = [
        min(name for name in package(root) - inside if not graph().find_children(name))
        for root in ROOTS
    ]
    for door in options["protected_modules"]:
        yield from (((stranger, name),) for name in package(door) for stranger in strangers)


def against_forbidden(options: Options) -> Iterator[Violation]:
    """A module of each source imports something forbidden, by turns all that is, and a module of
    ours that does.
    """
    forbidden = cycle(sorted(options["forbidden_modules"]))
    assert len(options["source_modules"]) >= len(options["forbidden_modules"])
    impure = "orch.component.process.clock"
    assert graph().find_modules_directly_imported_by(impure) & set(options["forbidden_modules"])
    for source in options["source_modules"]:
        yield ((a_leaf(source), next(forbidden)),)
        yield ((a_leaf(source), impure),)


PLANTS: dict[str, tuple[type[Contract], Callable[[Options], Iterator[Violation]]]] = {
    "acyclic_siblings": (AcyclicSiblingsContract, against_acyclic_siblings),
    "forbidden": (ForbiddenContract, against_forbidden),
    "layers": (LayersContract, against_layers),
    "protected": (ProtectedContract, against_protected),
}
CONTRACTS = [
    pytest.param(options, id=options["name"]) for options in CONFIGURATION["contracts_options"]
]


def is_kept(options: Options, planted: Violation = ()) -> bool:
    made, _ = PLANTS[options["type"]]
    if planted and "source_modules" in options:  # each is judged by itself: the importers' suffice
        importers = {importer for importer, _ in planted}
        sources = [one for one in options["source_modules"] if importers & package(one)]
        options = {**options, "source_modules": sources}
    copied = copy.deepcopy(graph())
    for importer, imported in planted:
        if imported not in copied.modules:
            copied.add_module(imported, is_squashed=True)
        copied.add_import(importer=importer, imported=imported)
    return made(options["name"], SESSION, options).check(copied, verbose=False).kept


@pytest.mark.parametrize("options", CONTRACTS)
def test_a_contract_is_kept(options: Options) -> None:
    assert is_kept(options)


@pytest.mark.parametrize("options", CONTRACTS)
def test_a_contract_breaks_on_every_planted_violation(options: Options) -> None:
    _, violations = PLANTS[options["type"]]
    planted = list(violations(options))
    assert planted, "no violation is planted against this contract"
    unnoticed = [violation for violation in planted if is_kept(options, violation)]
    assert unnoticed == []


def test_the_graph_is_that_of_this_tree() -> None:
    specification = importlib.util.find_spec(ROOTS[0])
    assert specification and specification.origin == str(ROOT / ROOTS[0] / "__init__.py")


def test_the_layers_name_every_package() -> None:
    [options] = [one for one in CONFIGURATION["contracts_options"] if one["type"] == "layers"]
    named = {name.strip() for layer in options["layers"] for name in layer.split("|")}
    assert named == {"nodeagent"} | graph().find_children("orch")


def test_what_is_forbidden_exists() -> None:
    """A misspelt foreign module would never be imported."""
    names = [name for one in CONFIGURATION["contracts_options"] for name in forbidden_of(one)]
    assert [name for name in names if importlib.util.find_spec(name) is None] == []


def forbidden_of(options: Options) -> list[str]:
    return [*options.get("forbidden_modules", ())]


def test_whatever_calls_itself_pure_is_under_a_contract() -> None:
    pure = {
        name
        for options in CONFIGURATION["contracts_options"]
        if options["type"] == "forbidden"
        for source in options["source_modules"]
        for name in package(source)
    }
    claiming = {module for module in own_modules() if calls_itself_pure(module)}
    assert sorted(claiming - pure) == []


def calls_itself_pure(module: str) -> bool:
    """Whether the docstring says "pure" of the module, not of "pure functions" it has or uses."""
    path = ROOT.joinpath(*module.split("."))
    text = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
    docstring = text.split('"""')[1] if text.startswith('"""') else ""
    return bool(re.search(r"(?<!are )\b[Pp]ure\b(?! functions?)", " ".join(docstring.split())))
