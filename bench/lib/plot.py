"""Draws with matplotlib, in a virtual environment below target/ where this Python has none."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import venv
from pathlib import Path

from .results import Results


def python(scratch: Path) -> str:
    """A Python that has matplotlib."""
    if importlib.util.find_spec("matplotlib"):
        return sys.executable
    home = scratch / "venv"
    found = home / "bin" / "python"
    if not found.exists():
        print(f"no matplotlib here: installing it into {home}", flush=True)
        venv.create(home, with_pip=True)
    if subprocess.run([found, "-c", "import matplotlib"], capture_output=True).returncode:
        subprocess.run([found, "-m", "pip", "install", "--quiet", "matplotlib"], check=True)
    return str(found)


def draw(figure, panels, results: Results, scratch: Path, out: Path) -> None:
    shown = [p for p in panels if p.name in results.panels and not p.table]
    if not shown:
        return
    spec = {
        "title": f"{figure.name}: {figure.title}",
        "panels": [
            {
                "name": p.name,
                "xlabel": p.xlabel,
                "ylabel": p.ylabel,
                "log": p.log,
                "curves": {
                    label: [[q.x, q.y, q.sd] for q in points] for label, points in results.panels[p.name].items()
                },
            }
            for p in shown
        ],
    }
    described = scratch / f"{figure.name}.json"
    script, text = Path(__file__).with_name("draw.py"), json.dumps(spec)
    drawn = out.exists() and out.stat().st_mtime > script.stat().st_mtime
    if drawn and described.exists() and described.read_text() == text:
        return
    described.write_text(text)
    subprocess.run([python(scratch), script, described, out], check=True)
