"""draw.py SPEC.json OUT.svg: the panels of a figure side by side. The only file here that needs matplotlib."""

import json
import math
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import NullLocator  # noqa: E402

spec = json.load(open(sys.argv[1]))
plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "fednmf", "font.size": 8, "axes.grid": True})
plt.rcParams.update({"grid.alpha": 0.25, "axes.spines.top": False, "axes.spines.right": False, "lines.linewidth": 1.3})

labels = list(dict.fromkeys(label for panel in spec["panels"] for label in panel["curves"]))
colours = plt.get_cmap("tab10" if len(labels) <= 10 else "tab20").colors
marks = "os^vD<>ph*"

count = len(spec["panels"])
columns = count if count < 4 else math.ceil(count / math.ceil(count / 4))
rows = math.ceil(count / columns)
figure, axes = plt.subplots(rows, columns, figsize=(3.1 * columns + 0.4, 2.6 * rows + 0.9), squeeze=False)
for axis in axes.flat[count:]:
    axis.set_axis_off()
for axis, panel in zip(axes.flat, spec["panels"]):
    names = None
    for label, points in panel["curves"].items():
        i = labels.index(label)
        x, y, sd = zip(*points)
        if isinstance(x[0], str):
            names = x
            x = range(len(x))
        style = {"color": colours[i % len(colours)], "marker": marks[i % len(marks)], "markersize": 3}
        axis.plot(x, y, label=label, markevery=max(1, len(x) // 12), **style)
        if any(sd):
            low, high = ([a + s * b for a, b in zip(y, sd)] for s in (-1, 1))
            if "y" in panel["log"]:
                low = [max(v, min(y) / 2) for v in low]
            axis.fill_between(x, low, high, color=style["color"], alpha=0.12, linewidth=0)
    if names:
        axis.set_xticks(range(len(names)), names, rotation=30, ha="right")
    axis.set(xlabel=panel["xlabel"], ylabel=panel["ylabel"])
    axis.set_title(panel["name"], fontsize=9)
    if "x" in panel["log"] and not names:
        xs = sorted({p[0] for points in panel["curves"].values() for p in points})
        above = [x for x in xs if x > 0]
        axis.set_xscale("symlog", linthresh=above[0]) if above != xs else axis.set_xscale("log")
        if len(xs) <= 8:
            axis.set_xticks(xs, [f"{x:g}" for x in xs])
            axis.xaxis.set_minor_locator(NullLocator())
    if "y" in panel["log"]:
        axis.set_yscale("log")
        ys = [p[1] for points in panel["curves"].values() for p in points if p[1] > 0]
        axis.set_ylim(bottom=max(min(ys) * 0.8, max(ys) * 1e-6))
handles = {}
for axis in axes.flat:
    handles |= {label: handle for handle, label in zip(*axis.get_legend_handles_labels())}
figure.suptitle(spec["title"], fontsize=10)
width = max(1, min(len(handles), int(columns * 2.2)))
figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=width, frameon=False)
figure.tight_layout(rect=(0, 0.045 * math.ceil(len(handles) / width) * 2 / rows, 1, 1))
metadata = {"Date": None} if sys.argv[2].endswith("svg") else None
figure.savefig(sys.argv[2], metadata=metadata, dpi=80)
