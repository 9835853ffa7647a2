"""The limit and use of memory, from the files that the kernel shows in each version."""

from __future__ import annotations

import os
from pathlib import Path

from orch.component.process.memory import ProcessMemory

PAGE = os.sysconf("SC_PAGE_SIZE")
GIB = 1 << 30


def written(root: Path, files: dict[str, str]) -> ProcessMemory:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return ProcessMemory(root / "proc", root / "cg")


def test_the_tightest_group_above_counts_without_what_can_be_taken_back(tmp_path: Path) -> None:
    memory = written(
        tmp_path,
        {
            "proc/cgroup": "0::/system.slice/x.service\n",
            "proc/statm": "1000 20 5 0 0 0 0",
            "cg/system.slice/x.service/memory.max": "max\n",
            "cg/system.slice/x.service/memory.current": "1\n",
            "cg/system.slice/memory.max": f"{GIB}\n",
            "cg/system.slice/memory.current": f"{600 << 20}\n",
            "cg/system.slice/memory.stat": f"anon 5\ninactive_file {50 << 20}\n"
            f"active_file {30 << 20}\n",
        },
    )
    assert memory.limit_bytes() == GIB
    assert memory.used_bytes() == 520 << 20


def test_a_group_of_version_1_has_other_names(tmp_path: Path) -> None:
    memory = written(
        tmp_path,
        {
            "proc/cgroup": "5:cpu:/a\n4:memory:/a/b\n0::/\n",
            "proc/statm": "1000 20 5 0 0 0 0",
            "cg/memory/a/b/memory.limit_in_bytes": f"{GIB}\n",
            "cg/memory/a/b/memory.usage_in_bytes": f"{300 << 20}\n",
            "cg/memory/a/b/memory.stat": "inactive_file 1\ntotal_inactive_file 1048576\n"
            "total_active_file 1048576\n",
            "cg/memory/a/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    assert memory.limit_bytes() == GIB
    assert memory.used_bytes() == 298 << 20


def test_without_a_limit_the_machines_memory_and_the_process_count(tmp_path: Path) -> None:
    memory = written(tmp_path, {"proc/cgroup": "0::/\n", "proc/statm": "1000 20 5 0 0 0 0"})
    assert memory.limit_bytes() == os.sysconf("SC_PHYS_PAGES") * PAGE
    assert memory.used_bytes() == 20 * PAGE


def test_hidden_files_are_no_error_and_this_process_has_figures(tmp_path: Path) -> None:
    assert ProcessMemory(tmp_path, tmp_path).used_bytes() == 0
    own = ProcessMemory()
    assert own.used_bytes() > 0 and own.limit_bytes() > 0
