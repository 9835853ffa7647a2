"""Every module has its tests: in the file that mirrors its path, or where COVERED_BY says.

Not asked for: modules without a function of their own (records, names), and generated stubs. A
file in COVERED_BY ran at least four fifths of each module's statements when it was entered; what
is checked here is that the entry is still needed and that the file still reaches the module.
Imports are read by a pattern: to parse every file of the tree takes ten times as long.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("nodeagent", "orch")
TREES = (*PACKAGES, "tests", "tools")

_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+([\w., \t]+))",
    re.MULTILINE,
)
_LOADED_BY_NAME = re.compile(r'\bf"((?:' + "|".join(PACKAGES) + r")[\w.]*)\.\{")
_COMMENT = re.compile(r"#[^\n]*")

# Parts of one thing that is tested as a whole: test file → modules.
COVERED_BY: dict[str, tuple[str, ...]] = {
    "nodeagent/archives/test_pruner.py": ("nodeagent.archives.reports",),
    "nodeagent/archives/test_store.py": ("nodeagent.archives.folder",),
    "nodeagent/commands/test_join.py": (
        "nodeagent.certificates.discovery",
        "nodeagent.certificates.enrolment",
        "nodeagent.certificates.joining",
        "nodeagent.certificates.rotation",
        "nodeagent.commands.leave",
    ),
    "nodeagent/config/test_types.py": ("nodeagent.config.fields",),
    "nodeagent/hollow/test_fleet.py": ("nodeagent.hollow.node",),
    "nodeagent/metrics/test_containerstats.py": (
        "nodeagent.metrics.columns",
        "nodeagent.metrics.device_columns",
    ),
    "nodeagent/metrics/test_pods.py": ("nodeagent.metrics.families",),
    "nodeagent/pods/cgroups/test_pod_cgroups.py": ("nodeagent.pods.cgroups.tree",),
    "nodeagent/pods/spec/test_spec.py": ("nodeagent.pods.spec.mounts",),
    "nodeagent/pods/devices/test_registration.py": ("nodeagent.pods.devices.plugin",),
    "nodeagent/pods/test_pod_workers.py": ("nodeagent.pods.worker.services",),
    "nodeagent/pods/volumes/test_volumes_mounted.py": ("nodeagent.pods.volumes.kernel_mounts",),
    "nodeagent/profiles/test_lint.py": ("nodeagent.profiles.rules",),
    "nodeagent/runtime/test_contract.py": ("nodeagent.runtime.base",),
    "nodeagent/stats/cgroup/test_readers.py": ("nodeagent.stats.cgroup.sample",),
    "nodeagent/stats/host/test_processes.py": ("nodeagent.stats.sources",),
    "nodeagent/pressure/causes/test_rank.py": (
        "nodeagent.pressure.causes.cause",
        "nodeagent.pressure.causes.disks",
        "nodeagent.pressure.causes.memory",
        "nodeagent.pressure.causes.processors",
    ),
    "nodeagent/pressure/test_watch.py": ("nodeagent.pressure.evidence",),
    "nodeagent/stats/test_summary.py": ("nodeagent.stats.summary_disks",),
    "nodeagent/wiring/test_agent.py": ("nodeagent.wiring.base",),
    "orch/component/flags/test_features.py": ("orch.component.flags.reference_gates",),
    "orch/ctl/test_api.py": ("orch.client.json_api",),
    "orch/ctl/objects/test_token.py": (
        "orch.ctl.objects.certificate",
        "orch.wire.bootstrap_tokens",
    ),
    "orch/ctl/test_main.py": ("orch.ctl.command_table",),
    "orch/lifecycle/decide/test_decision.py": ("orch.lifecycle.decide.heartbeats",),
    "orch/lifecycle/test_monitor.py": ("orch.lifecycle.canary",),
    "orch/server/admission/test_certificates.py": ("orch.server.strategy.signing_requests",),
    "orch/server/admission/pod_security/test_evaluation.py": (
        "orch.server.admission.pod_security.baseline",
        "orch.server.admission.pod_security.judged",
        "orch.server.admission.pod_security.restricted",
    ),
    "orch/server/authn/test_credentials.py": ("orch.server.authn.flags",),
    "orch/server/authz/test_index.py": ("orch.server.authz.table",),
    "orch/server/customresources/test_serving.py": (
        "orch.server.customresources.kinds",
        "orch.server.customresources.scaling",
    ),
    "orch/server/discovery/test_nonresource.py": ("orch.server.discovery.published",),
    "orch/server/discovery/test_openapi.py": (
        "orch.server.discovery.openapi_paths",
        "orch.server.discovery.openapi_schemas",
    ),
    "orch/server/objects/test_delete.py": ("orch.server.objects.backend",),
    "orch/server/test_server.py": ("orch.server.application",),
    "orch/server/storage/test_sqlite.py": ("orch.server.storage.base",),
    "orch/server/strategy/test_base.py": ("orch.server.strategy.table",),
    "orch/server/webhooks/test_admission.py": ("orch.server.webhooks.metrics",),
    "orch/server/webhooks/test_authorization.py": ("orch.server.asking",),
    "orch/wire/podrules/test_containers.py": ("orch.wire.podrules.lifecycle",),
}
ENTRIES = [(file, module) for file, modules in COVERED_BY.items() for module in modules]


@cache
def files() -> dict[str, Path]:
    """Every module of the tree, packages too, and its file."""
    found = {}
    for tree in TREES:
        for path in sorted((ROOT / tree).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def modules() -> tuple[str, ...]:
    """The product's modules, without packages and generated stubs."""
    return tuple(
        name
        for name, path in files().items()
        if name.startswith(tuple(f"{package}." for package in PACKAGES))
        and path.name != "__init__.py"
        and not path.stem.endswith(("_pb2", "_pb2_grpc"))
    )


@cache
def text_of(path: Path) -> str:
    return path.read_text()


@cache
def has_code(module: str) -> bool:
    """Whether a function has a body beyond its docstring or `...`."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    tree = ast.parse(text_of(files()[module]))
    return any(
        not all(
            isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) for line in body
        )
        for body in (node.body for node in ast.walk(tree) if isinstance(node, functions))
    )


@cache
def files_of_tests() -> dict[str, list[Path]]:
    """By the folder they mirror, as a dotted name."""
    found: dict[str, list[Path]] = {}
    for name, path in files().items():
        package, _, file = name.removeprefix("tests.").rpartition(".")
        if name.startswith("tests.") and file.startswith("test_"):
            found.setdefault(package, []).append(path)
    return found


@cache
def mirrors_of(module: str) -> tuple[Path, ...]:
    """`test_<module>.py` at the same place, or several `test_<module>_<aspect>.py`."""
    package, _, name = module.rpartition(".")
    stem = f"test_{name}"
    return tuple(
        path
        for path in files_of_tests().get(package, ())
        if path.stem == stem or path.stem.startswith(f"{stem}_")
    )


@cache
def imported(path: Path) -> frozenset[str]:
    """The modules that a file imports, here or anywhere in it."""
    text = text_of(path)
    found: set[str] = set()
    for package, names, plain in _IMPORT.findall(text):
        listed = _COMMENT.sub("", names or plain).strip("() \t\n").split(",")
        chosen = [name.split()[0] for name in listed if name.strip()]
        found.update([package, *(f"{package}.{name}" for name in chosen)] if package else chosen)
    for package in _LOADED_BY_NAME.findall(text):  # `import_module(f"package.{name}")`
        found.update(name for name in files() if name.startswith(f"{package}."))
    return frozenset(found & files().keys())


@cache
def reached(path: Path) -> frozenset[str]:
    """What a file imports, and what that imports, and so on."""
    found: set[str] = set()
    pending = [path]
    while pending:
        new = imported(pending.pop()) - found
        found |= new
        pending += [files()[module] for module in new]
    return frozenset(found)


def test_every_module_has_a_test_file() -> None:
    covered = {module for _, module in ENTRIES}
    without = [
        module
        for module in modules()
        if module not in covered and not mirrors_of(module) and has_code(module)
    ]
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


def test_what_runs_alone_lies_where_make_looks_for_it() -> None:
    commands = re.findall(r"-m alone (.*)", (ROOT / "Makefile").read_text())
    named = [one for command in commands for one in command.split()]
    marked = [path for path in (ROOT / "tests").rglob("test_*.py") if "mark.alone" in text_of(path)]
    marked.remove(Path(__file__))
    found = {path: [one for one in named if path.is_relative_to(ROOT / one)] for path in marked}
    assert [path for path in marked if not found[path]] == []
    assert {one for places in found.values() for one in places} == {*named}


def runs_as_program(path: Path, module: str) -> bool:
    """Whether a test starts the module as a process: `python -m module`."""
    return f'"{module}"' in text_of(path)


@pytest.mark.parametrize(("file", "module"), ENTRIES)
def test_an_entry_is_true_and_still_needed(file: str, module: str) -> None:
    assert module in modules(), f"{module} is gone: strike it"
    assert has_code(module), f"{module} has nothing to test: strike it"
    assert not mirrors_of(module), f"{module} has a test file of its own: strike it"
    path = ROOT / "tests" / file
    assert path.is_file(), f"{file} is gone: who covers {module} now?"
    assert module in reached(path), f"{file} does not reach {module} any more"


def test_nothing_is_entered_twice() -> None:
    entered = [module for _, module in ENTRIES]
    assert len(set(entered)) == len(entered)
