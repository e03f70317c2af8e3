"""The examples in which a platform carries the connections between sites and hub."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAM = os.environ.get("FEDNMF_BINARY") or shutil.which("fednmf")
#: The commands of the packages of this Python come first.
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def _carries(platform, directory, **settings):
    path = os.pathsep.join([str(Path(PROGRAM).resolve().parent), PATH])
    ran = subprocess.run(
        ["bash", EXAMPLES / platform / "try.sh", directory],
        env={**os.environ, **settings, "PATH": path},
        capture_output=True,
        text=True,
        # A SuperNode of Flower handles about one message a second.
        timeout=1800,
    )
    logs = "".join(log.read_text()[-3000:] for log in sorted(directory.glob("*.log")))
    assert ran.returncode == 0, ran.stdout + ran.stderr + logs
    assert "All sites have the same V, to the bit." in ran.stdout


@pytest.mark.skipif(PROGRAM is None, reason="needs the program fednmf")
@pytest.mark.skipif(shutil.which("nvflare", path=PATH) is None, reason="needs nvflare: pip install nvflare")
def test_nvflare_carries_a_run(tmp_path):
    _carries("nvflare", tmp_path / "new")


@pytest.mark.skipif(PROGRAM is None, reason="needs the program fednmf")
@pytest.mark.skipif(shutil.which("flower-superlink", path=PATH) is None, reason="needs flwr: pip install 'flwr==1.41.*'")
def test_flower_carries_a_run(tmp_path):
    _carries("flower", tmp_path / "new", ROUNDS="3")
