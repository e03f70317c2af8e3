#!/usr/bin/env python3
"""The plots of fednmf.pl on handwritten digits, in one picture: that of docs/guide/python.md.

Usage: plots.py [plots.png]. Needs the Python package, scikit-learn (for its 1797 digits) and matplotlib.
"""

import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

import fednmf

digits = load_digits()
model = fednmf.NMF(8, random_state=0)
W = model.fit_transform(digits.data)
found = fednmf.tl.choose_k(digits.data[:600], ks=range(2, 9), n_runs=4)

figure = plt.figure(figsize=(11, 8.5), layout="constrained")
parts = figure.subfigures(3, 1, height_ratios=[1, 2, 2])
parts[0].suptitle("pl.images")
fednmf.pl.images(model, (8, 8), axes=parts[0].subplots(1, 8))
left, right = parts[1].subfigures(1, 2)
left.suptitle("pl.usage")
fednmf.pl.usage(W, digits.target, H=model.components_, ax=left.subplots())
right.suptitle("pl.consensus")
fednmf.pl.consensus(found, ax=right.subplots())
parts[2].suptitle("pl.choose_k")
fednmf.pl.choose_k(found, axes=parts[2].subplots(1, 2))
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "plots.png", dpi=80)
