#!/usr/bin/env python3
"""Plots the components of handwritten digits: the picture of the README.

Usage: digits.py [digits.png]. Needs the Python package, scikit-learn (for its 1797 digits) and matplotlib.
"""

import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from fednmf import NMF

X = load_digits().data  # 1797 images of 8 x 8 pixels
model = NMF(16, random_state=0)
W = model.fit_transform(X)
parts = model.components_
again = W @ parts

figure = plt.figure(figsize=(8, 2.9), facecolor="white")
for side, title, images in zip(
    figure.subfigures(1, 3), ["digits", "16 components", "sums of components"], [X[:16], parts, again[:16]]
):
    side.suptitle(title, fontsize=11)
    for image, axis in zip(images, side.subplots(4, 4).flat):
        axis.imshow(image.reshape(8, 8), cmap="gray_r")
        axis.set(xticks=[], yticks=[])
        axis.spines[:].set_color("#bbbbbb")
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "digits.png", dpi=100)
