from pathlib import Path

from nodeagent.stats.host.machine import read_hugepages


def test_pages_are_counted_in_bytes_by_size(tmp_path: Path) -> None:
    for name, pages in (("hugepages-2048kB", "16\n"), ("hugepages-1048576kB", "0\n")):
        folder = tmp_path / "kernel/mm/hugepages" / name
        folder.mkdir(parents=True)
        (folder / "nr_hugepages").write_text(pages)
    (tmp_path / "kernel/mm/hugepages/hugepages-odd").mkdir()
    assert read_hugepages(str(tmp_path)) == {2 * 1024**2: 32 * 1024**2, 1024**3: 0}


def test_a_kernel_without_them_has_none(tmp_path: Path) -> None:
    assert read_hugepages(str(tmp_path)) == {}
