"""Every module has its tests: in the file that mirrors its path, or where COVERED_BY says.

Not asked for: modules without a function of their own (records, names), and generated stubs. A
file in COVERED_BY ran at least four fifths of each module's statements when it was entered; what
is checked here is that the entry is still needed and that the file still reaches the module.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("nodeagent", "orch")
GENERATED = (
    "nodeagent/runtime/cri_pb2.py",
    "nodeagent/runtime/cri_pb2_grpc.py",
    "orch/server/storage/etcd_pb2.py",
    "orch/server/storage/etcd_pb2_grpc.py",
)

# Parts of one thing that is tested as a whole: test file → modules.
COVERED_BY: dict[str, tuple[str, ...]] = {
    "nodeagent/checkpoint/test_pruner.py": (
        "nodeagent.checkpoint.counts",
        "nodeagent.checkpoint.reports",
    ),
    "nodeagent/checkpoint/test_store.py": ("nodeagent.checkpoint.folder",),
    "nodeagent/config/test_types.py": ("nodeagent.config.fields",),
    "nodeagent/hollow/test_fleet.py": ("nodeagent.hollow.node",),
    "nodeagent/metrics/test_containerstats.py": (
        "nodeagent.metrics.columns",
        "nodeagent.metrics.devicecolumns",
    ),
    "nodeagent/test_parts.py": ("nodeagent.healthparts",),
    "nodeagent/test_seccomplint.py": ("nodeagent.seccomprules",),
    "nodeagent/pods/test_admission.py": ("nodeagent.pods.sysctls",),
    "nodeagent/pods/test_agent_killed.py": ("nodeagent.pods.observed",),
    "nodeagent/pods/test_cgroups.py": ("nodeagent.pods.cgrouptree",),
    "nodeagent/pods/test_hooks.py": (
        "nodeagent.pods.terminationmessages",
        "nodeagent.pods.starting",
        "nodeagent.pods.stopping",
    ),
    "nodeagent/pods/test_keeper.py": (
        "nodeagent.pods.cleanup",
        "nodeagent.pods.confinement",
        "nodeagent.pods.counts",
        "nodeagent.pods.desired",
        "nodeagent.pods.display",
        "nodeagent.pods.services",
        "nodeagent.pods.steps",
    ),
    "nodeagent/pods/test_plan.py": ("nodeagent.pods.restarts",),
    "nodeagent/pods/test_qos.py": ("nodeagent.pods.bounds",),
    "nodeagent/pods/test_spec.py": ("nodeagent.pods.hashes", "nodeagent.pods.mounts"),
    "nodeagent/pods/test_status.py": ("nodeagent.pods.conditions", "nodeagent.pods.phase"),
    "nodeagent/pods/test_volumes.py": (
        "nodeagent.pods.hostpaths",
        "nodeagent.pods.kernelmounts",
    ),
    "nodeagent/runtime/test_contract.py": ("nodeagent.runtime.base",),
    "nodeagent/stats/test_cgroups.py": (
        "nodeagent.stats.assembly",
        "nodeagent.stats.cgrouplimits",
        "nodeagent.stats.cgroupsource",
    ),
    "nodeagent/stats/test_processes.py": ("nodeagent.stats.background",),
    "nodeagent/stats/test_sampler.py": (
        "nodeagent.stats.nodereading",
        "nodeagent.stats.reading",
    ),
    "nodeagent/stats/test_summary.py": ("nodeagent.stats.summarydisks",),
    "orch/component/test_metrics.py": ("orch.component.metriclabels",),
    "orch/ctl/test_config_set.py": ("orch.ctl.config_file",),
    "orch/ctl/test_delete.py": ("orch.ctl.deletion",),
    "orch/ctl/test_events.py": ("orch.ctl.happenings",),
    "orch/ctl/test_jsonpath.py": ("orch.ctl.jsonpath_syntax",),
    "orch/ctl/test_label.py": ("orch.ctl.choosing",),
    "orch/ctl/test_main.py": ("orch.ctl.commands", "orch.ctl.parsing"),
    "orch/lifecycle/test_decide.py": (
        "orch.lifecycle.probes",
        "orch.lifecycle.taints",
    ),
    "orch/lifecycle/test_eviction.py": ("orch.lifecycle.podactions",),
    "orch/lifecycle/test_monitor.py": (
        "orch.lifecycle.canary",
        "orch.lifecycle.metrics",
    ),
    "orch/server/resources/test_delete.py": ("orch.server.resources.backend",),
    "orch/server/test_credentials.py": ("orch.server.authflags",),
    "orch/server/rbac/test_index.py": ("orch.server.rbac.table",),
    "orch/server/storage/test_sqlite.py": (
        "orch.server.storage.base",
        "orch.server.storage.mirror",
        "orch.server.storage.watches",
    ),
    "orch/server/strategy/test_base.py": ("orch.server.strategy.table",),
    "orch/server/test_fieldcheck.py": ("orch.server.knownfields",),
    "orch/server/test_handlers.py": ("orch.server.app", "orch.server.call"),
    "orch/server/test_openapi.py": ("orch.server.openapipaths", "orch.server.openapischemas"),
    "orch/server/test_protobuf.py": ("orch.server.protobufwire",),
    "orch/wire/test_json_patch.py": ("orch.wire.patch_data",),
}
ENTRIES = [(file, module) for file, modules in COVERED_BY.items() for module in modules]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def file_of(module: str) -> Path | None:
    path = ROOT.joinpath(*module.split("."))
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((one for one in candidates if one.is_file()), None)


def modules() -> Iterator[str]:
    """Every module of the product that has something to test."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            relative = path.relative_to(ROOT)
            if path.name != "__init__.py" and str(relative) not in GENERATED and has_code(path):
                yield ".".join(relative.with_suffix("").parts)


def has_code(path: Path) -> bool:
    """Whether a function has a body beyond its docstring or `...`."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return any(
        not all(isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) for one in body)
        for body in (node.body for node in ast.walk(parsed(path)) if isinstance(node, functions))
    )


def mirror_of(module: str) -> Path:
    *folders, name = module.split(".")
    return ROOT.joinpath("tests", *folders, f"test_{name}.py")


@cache
def imported(path: Path) -> frozenset[str]:
    """The modules that a file imports, here or anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.JoinedStr):
            found.update(loaded_by_name(node))
    return frozenset(name for name in found if file_of(name))


def loaded_by_name(text: ast.JoinedStr) -> Iterator[str]:
    """The modules that `import_module(f"package.{name}")` may load."""
    first = text.values[0] if text.values else None
    package = first.value if isinstance(first, ast.Constant) else None
    if isinstance(package, str) and package.endswith(".") and package.startswith(PACKAGES):
        folder = ROOT.joinpath(*package.split("."))
        yield from (f"{package}{path.stem}" for path in folder.glob("*.py"))


@cache
def reached(path: Path) -> frozenset[str]:
    """What a file imports, and what that imports, and so on."""
    found: set[str] = set()
    pending = [path]
    while pending:
        for module in imported(pending.pop()) - found:
            found.add(module)
            file = file_of(module)
            if file:
                pending.append(file)
    return frozenset(found)


def test_every_module_has_a_test_file() -> None:
    covered = {module for _, module in ENTRIES}
    without = [one for one in modules() if one not in covered and not mirror_of(one).is_file()]
    assert without == [], "write the test file that mirrors the path, or enter who covers it"


def test_every_mirroring_test_file_reaches_its_module() -> None:
    """A file that only bears the name tests nothing."""
    mirrors = {module: mirror_of(module) for module in modules() if mirror_of(module).is_file()}
    strays = [
        module
        for module, path in mirrors.items()
        if module not in reached(path) and not runs_as_program(path, module)
    ]
    assert strays == []


def runs_as_program(path: Path, module: str) -> bool:
    """Whether a test starts the module as a process: `python -m module`."""
    texts = (node.value for node in ast.walk(parsed(path)) if isinstance(node, ast.Constant))
    return module in texts


@pytest.mark.parametrize(("file", "module"), ENTRIES)
def test_an_entry_is_true_and_still_needed(file: str, module: str) -> None:
    assert module in set(modules()), f"{module} is gone, or has nothing to test: strike it"
    assert not mirror_of(module).is_file(), f"{module} has a test file of its own: strike it"
    path = ROOT / "tests" / file
    assert path.is_file(), f"{file} is gone: who covers {module} now?"
    assert module in reached(path), f"{file} does not reach {module} any more"


def test_nothing_is_entered_twice() -> None:
    entered = [module for _, module in ENTRIES]
    assert len(set(entered)) == len(entered)
