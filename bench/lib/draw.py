"""draw.py OUT.svg: plots the panels described by JSON on stdin side by side. Needs matplotlib."""

import json
import math
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import NullLocator  # noqa: E402

MARKERS = "os^vD<>ph*"


def draw_curve(axis, label, points, index, colours, log):
    """Draws a curve with a band of one standard deviation; returns the names on its x axis, if they are words."""
    x, y, sd = zip(*points)
    names = x if isinstance(x[0], str) else None
    if names:
        x = range(len(x))
    colour, marker = colours[index % len(colours)], MARKERS[index % len(MARKERS)]
    axis.plot(x, y, label=label, color=colour, marker=marker, markersize=3, markevery=max(1, len(x) // 12))
    if any(sd):
        low, high = ([a + s * b for a, b in zip(y, sd)] for s in (-1, 1))
        if "y" in log:
            low = [max(v, min(y) / 2) for v in low]
        axis.fill_between(x, low, high, color=colour, alpha=0.12, linewidth=0)
    return names


def scale_axes(axis, panel, names):
    points = [p for curve in panel["curves"].values() for p in curve]
    if names:
        axis.set_xticks(range(len(names)), names, rotation=30, ha="right")
    elif "x" in panel["log"]:
        xs = sorted({p[0] for p in points})
        positive = [x for x in xs if x > 0]
        if positive == xs:
            axis.set_xscale("log")
        else:
            axis.set_xscale("symlog", linthresh=positive[0])
        if len(xs) <= 8:
            axis.set_xticks(xs, [f"{x:g}" for x in xs])
            axis.xaxis.set_minor_locator(NullLocator())
    if "y" in panel["log"]:
        axis.set_yscale("log")
        ys = [p[1] for p in points if p[1] > 0]
        axis.set_ylim(bottom=max(min(ys) * 0.8, max(ys) * 1e-6))


def main():
    spec = json.load(sys.stdin)
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "fednmf", "font.size": 8, "axes.grid": True})
    plt.rcParams.update({"grid.alpha": 0.25, "axes.spines.top": False, "axes.spines.right": False})
    plt.rcParams.update({"lines.linewidth": 1.3})
    labels = list(dict.fromkeys(label for panel in spec["panels"] for label in panel["curves"]))
    colours = plt.get_cmap("tab10" if len(labels) <= 10 else "tab20").colors
    count = len(spec["panels"])
    columns = count if count < 4 else math.ceil(count / math.ceil(count / 4))
    rows = math.ceil(count / columns)
    figure, axes = plt.subplots(rows, columns, figsize=(3.1 * columns + 0.4, 2.6 * rows + 0.9), squeeze=False)
    for axis in axes.flat[count:]:
        axis.set_axis_off()
    handles = {}
    for axis, panel in zip(axes.flat, spec["panels"]):
        names = None
        for label, points in panel["curves"].items():
            names = draw_curve(axis, label, points, labels.index(label), colours, panel["log"])
        axis.set(xlabel=panel["xlabel"], ylabel=panel["ylabel"])
        axis.set_title(panel["name"], fontsize=9)
        scale_axes(axis, panel, names)
        handles |= {label: handle for handle, label in zip(*axis.get_legend_handles_labels())}
    figure.suptitle(spec["title"], fontsize=10)
    width = max(1, min(len(handles), int(columns * 2.2)))
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=width, frameon=False)
    figure.tight_layout(rect=(0, 0.045 * math.ceil(len(handles) / width) * 2 / rows, 1, 1))
    figure.savefig(sys.argv[1], metadata={"Date": None})


main()
