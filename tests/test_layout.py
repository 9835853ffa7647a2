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

# Parts of one thing that is tested as a whole: test file → modules.
COVERED_BY: dict[str, tuple[str, ...]] = {
    "nodeagent/archives/test_pruner.py": ("nodeagent.archives.reports",),
    "nodeagent/archives/test_store.py": ("nodeagent.archives.folder",),
    "nodeagent/config/test_types.py": ("nodeagent.config.fields",),
    "nodeagent/hollow/test_fleet.py": ("nodeagent.hollow.node",),
    "nodeagent/metrics/test_containerstats.py": (
        "nodeagent.metrics.columns",
        "nodeagent.metrics.device_columns",
    ),
    "nodeagent/pods/cgroups/test_pod_cgroups.py": ("nodeagent.pods.cgroups.tree",),
    "nodeagent/pods/decide/test_admission.py": ("nodeagent.pods.spec.sysctls",),
    "nodeagent/pods/decide/test_plan.py": ("nodeagent.pods.decide.restarts",),
    "nodeagent/pods/decide/test_status.py": ("nodeagent.pods.decide.conditions",),
    "nodeagent/pods/spec/test_spec.py": ("nodeagent.pods.spec.mounts",),
    "nodeagent/pods/test_pod_workers.py": (
        "nodeagent.pods.worker.services",
        "nodeagent.pods.worker.steps",
    ),
    "nodeagent/pods/volumes/test_volumes.py": ("nodeagent.pods.volumes.kernel_mounts",),
    "nodeagent/pods/worker/test_stopping.py": (
        "nodeagent.pods.logs.termination_messages",
        "nodeagent.pods.worker.starting",
    ),
    "nodeagent/profiles/test_lint.py": ("nodeagent.profiles.rules",),
    "nodeagent/runtime/test_contract.py": ("nodeagent.runtime.base",),
    "nodeagent/stats/cgroup/test_readers.py": ("nodeagent.stats.cgroup.sample",),
    "nodeagent/stats/host/test_processes.py": ("nodeagent.stats.sources",),
    "nodeagent/stats/test_sampler.py": (
        "nodeagent.stats.node_reading",
        "nodeagent.stats.reading",
    ),
    "nodeagent/stats/test_summary.py": ("nodeagent.stats.summary_disks",),
    "nodeagent/wiring/test_agent.py": ("nodeagent.wiring.base",),
    "orch/ctl/test_api.py": ("orch.client.json_api",),
    "orch/ctl/test_main.py": ("orch.ctl.command_table",),
    "orch/lifecycle/decide/test_decision.py": ("orch.lifecycle.decide.heartbeats",),
    "orch/lifecycle/test_monitor.py": (
        "orch.lifecycle.canary",
        "orch.lifecycle.metrics",
    ),
    "orch/server/authn/test_credentials.py": ("orch.server.authn.flags",),
    "orch/server/authz/test_index.py": ("orch.server.authz.table",),
    "orch/server/discovery/test_openapi.py": (
        "orch.server.discovery.openapi_paths",
        "orch.server.discovery.openapi_schemas",
    ),
    "orch/server/objects/test_delete.py": ("orch.server.objects.backend",),
    "orch/server/storage/test_sqlite.py": (
        "orch.server.storage.base",
        "orch.server.storage.mirror",
    ),
    "orch/server/strategy/test_base.py": ("orch.server.strategy.table",),
    "orch/wire/patch/test_json_patch.py": ("orch.wire.patch.data",),
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
            if path.name != "__init__.py" and not is_generated(path) and has_code(path):
                yield ".".join(relative.with_suffix("").parts)


def is_generated(path: Path) -> bool:
    return path.stem.endswith(("_pb2", "_pb2_grpc"))


def has_code(path: Path) -> bool:
    """Whether a function has a body beyond its docstring or `...`."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return any(
        not all(isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) for one in body)
        for body in (node.body for node in ast.walk(parsed(path)) if isinstance(node, functions))
    )


@cache
def mirrors_of(module: str) -> tuple[Path, ...]:
    """`test_<module>.py` at the same place, or several `test_<module>_<aspect>.py`."""
    *folders, name = module.split(".")
    folder = ROOT.joinpath("tests", *folders)
    return (*folder.glob(f"test_{name}.py"), *folder.glob(f"test_{name}_*.py"))


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
        for path in folder.rglob("*.py"):
            yield package + ".".join(path.relative_to(folder).with_suffix("").parts)


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
    without = [one for one in modules() if one not in covered and not mirrors_of(one)]
    assert without == [], "write the test file that mirrors the path, or enter who covers it"


def test_every_mirroring_test_file_reaches_its_module() -> None:
    """A file that only bears the name tests nothing."""
    strays = [
        module
        for module in modules()
        if (paths := mirrors_of(module))
        and not any(module in reached(path) or runs_as_program(path, module) for path in paths)
    ]
    assert strays == []


def runs_as_program(path: Path, module: str) -> bool:
    """Whether a test starts the module as a process: `python -m module`."""
    texts = (node.value for node in ast.walk(parsed(path)) if isinstance(node, ast.Constant))
    return module in texts


@pytest.mark.parametrize(("file", "module"), ENTRIES)
def test_an_entry_is_true_and_still_needed(file: str, module: str) -> None:
    assert module in set(modules()), f"{module} is gone, or has nothing to test: strike it"
    assert not mirrors_of(module), f"{module} has a test file of its own: strike it"
    path = ROOT / "tests" / file
    assert path.is_file(), f"{file} is gone: who covers {module} now?"
    assert module in reached(path), f"{file} does not reach {module} any more"


def test_nothing_is_entered_twice() -> None:
    entered = [module for _, module in ENTRIES]
    assert len(set(entered)) == len(entered)
