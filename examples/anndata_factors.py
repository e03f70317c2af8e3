#!/usr/bin/env python3
"""Factorises an AnnData object and stores the factors in it.

Usage: anndata_factors.py [cells.h5ad [k]]. Needs anndata, and fednmf on the PATH (or in $FEDNMF).
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import anndata
import numpy as np

fednmf = os.environ.get("FEDNMF", "fednmf")
k = sys.argv[2] if len(sys.argv) > 2 else "4"

with tempfile.TemporaryDirectory() as folder:
    source, factors = Path(folder, "cells.h5ad"), Path(folder, "factors.h5ad")
    if len(sys.argv) > 1:
        adata = anndata.read_h5ad(sys.argv[1])
    else:
        rng = np.random.default_rng(1)
        adata = anndata.AnnData(rng.poisson(rng.gamma(1, 1, (100, 4)) @ rng.gamma(1, 1, (4, 50))).astype("f4"))
        adata.obs_names = [f"cell-{i}" for i in range(100)]
        adata.var_names = [f"gene-{i}" for i in range(50)]
    adata.write_h5ad(source)
    subprocess.run([fednmf, "--input", source, "-k", k, "--tol", "1e-5", "--output", factors, "--quiet"], check=True)
    found = anndata.read_h5ad(factors)

# Cells and genes are the same and in the same order, so the arrays can be assigned.
assert (found.obs_names == adata.obs_names).all() and (found.var_names == adata.var_names).all()
adata.obsm["X_nmf"], adata.varm["NMF"] = found.obsm["X_nmf"], found.varm["NMF"]
adata.uns["nmf"] = found.uns["nmf"]
print(adata)
print("relative error over iterations:", found.uns["nmf"]["trace"]["rel_error"])
for j, component in enumerate(adata.varm["NMF"].T):
    print(f"component {j}:", ", ".join(adata.var_names[np.argsort(-component)[:5]]))
