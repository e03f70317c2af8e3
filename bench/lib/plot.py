"""Plots stored curves with matplotlib, installed below target/ if this Python does not have it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import venv
from pathlib import Path

from .results import read_csv
from .spec import Figure


def python_with_matplotlib(scratch: Path) -> str:
    if importlib.util.find_spec("matplotlib"):
        return sys.executable
    home = scratch / "venv"
    python = home / "bin" / "python"
    if not python.exists():
        print(f"installing matplotlib into {home}", flush=True)
        venv.create(home, with_pip=True)
    if subprocess.run([python, "-c", "import matplotlib"], capture_output=True).returncode:
        subprocess.run([python, "-m", "pip", "install", "--quiet", "matplotlib"], check=True)
    return str(python)


def plot(figure: Figure, directory: Path, scratch: Path) -> None:
    """Plots curves.csv of a directory as plot.svg; a figure of tables alone has no plot."""
    curves = read_csv(directory / "curves.csv")
    panels = [p for p in figure.panels() if p.name in curves and not p.table]
    if not panels:
        return
    shown = [
        {"name": p.name, "xlabel": p.xlabel, "ylabel": p.ylabel, "log": p.log, "curves": curves[p.name]} for p in panels
    ]
    draw_panels(f"{figure.name}: {figure.title}", shown, directory / "plot.svg", scratch)


def draw_panels(title: str, panels: list[dict], path: Path, scratch: Path) -> None:
    """Plots panels side by side: name, labels of the axes, logarithmic axes, and curves of (x, y, standard deviation)."""
    spec = {"title": title, "panels": panels}
    command = [python_with_matplotlib(scratch), Path(__file__).with_name("draw.py"), path]
    subprocess.run(command, input=json.dumps(spec), text=True, check=True)
