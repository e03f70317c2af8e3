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


@pytest.mark.skipif(PROGRAM is None, reason="needs the program fednmf")
@pytest.mark.skipif(shutil.which("nvflare", path=PATH) is None, reason="needs nvflare: pip install nvflare")
def test_nvflare_carries_a_run(tmp_path):
    path = os.pathsep.join([str(Path(PROGRAM).resolve().parent), PATH])
    ran = subprocess.run(
        ["bash", EXAMPLES / "nvflare" / "try.sh", tmp_path / "new"],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=900,
    )
    log = tmp_path / "new" / "nvflare.log"
    assert ran.returncode == 0, ran.stdout + ran.stderr + (log.read_text()[-3000:] if log.exists() else "")
    assert "All sites have the same V, to the bit." in ran.stdout
