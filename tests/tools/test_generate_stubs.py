"""The committed stubs are those of the committed protos."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("stubs")
    script = ROOT / "tools" / "generate-stubs"
    subprocess.run([sys.executable, str(script), str(output)], check=True, timeout=60)
    return output


@pytest.mark.parametrize(
    "path",
    [
        "nodeagent/pods/prober/grpc_health_pb2.py",
        "nodeagent/pods/prober/grpc_health_pb2_grpc.py",
        "nodeagent/runtime/cri_pb2.py",
        "nodeagent/runtime/cri_pb2_grpc.py",
        "orch/server/request/kinds_pb2.py",
        "orch/server/storage/etcd_pb2.py",
        "orch/server/storage/etcd_pb2_grpc.py",
    ],
)
def test_generating_again_gives_the_committed_stub(generated: Path, path: str) -> None:
    assert (generated / path).read_text() == (ROOT / path).read_text()
