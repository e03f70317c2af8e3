#!/usr/bin/env python3
"""Factorises a NumPy array with the program, on several ranks if you like, and reads the factors back.

Usage: factors.py [ranks]. Needs numpy and h5py, and fednmf on the PATH (or in $FEDNMF).
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np

fednmf = os.environ.get("FEDNMF", "fednmf")
ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 1
launch = ["mpirun", "-n", str(ranks)] if ranks > 1 else []

with tempfile.TemporaryDirectory() as folder:
    data, factors = Path(folder, "x.npy"), Path(folder, "factors.h5")
    rng = np.random.default_rng(1)
    X = rng.random((200, 5)) @ rng.random((5, 80))
    np.save(data, X)
    command = [fednmf, "--input", data, "-k", "5", "--max-iters", "500", "--tol", "1e-9", "--output", factors, "--quiet"]
    subprocess.run(launch + command, check=True, stdout=subprocess.DEVNULL)
    with h5py.File(factors) as f:
        # In scikit-learn's notation W = U and H = Vᵀ.
        W, H = f["U"][:], f["V"][:].T
        print("algorithm", f.attrs["algo"], "version", f.attrs["version"])

error = np.linalg.norm(X - W @ H) / np.linalg.norm(X)
print(f"relative error {error:.6f}")
assert error < 0.02 and (W >= 0).all() and (H >= 0).all()
