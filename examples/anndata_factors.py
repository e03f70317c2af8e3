#!/usr/bin/env python3
"""Factorises the counts of an AnnData object and prints the genes of each component.

Usage: anndata_factors.py [cells.h5ad [k]]. Needs the Python package and anndata. Without a file it makes counts of four programmes.
"""

import sys

import anndata
import numpy as np

import fednmf

if len(sys.argv) > 1:
    adata = anndata.read_h5ad(sys.argv[1])
else:
    rng = np.random.default_rng(1)
    adata = anndata.AnnData(rng.poisson(rng.gamma(1, 1, (100, 4)) @ rng.gamma(1, 1, (4, 50))).astype("f4"))
    adata.obs_names = [f"cell-{i}" for i in range(100)]
    adata.var_names = [f"gene-{i}" for i in range(50)]

k = int(sys.argv[2]) if len(sys.argv) > 2 else 4
fednmf.tl.nmf(adata, k, beta_loss="kullback-leibler", max_iter=1000)
print(adata)
for j, component in enumerate(adata.varm["NMF"].T):
    print(f"component {j}:", ", ".join(adata.var_names[np.argsort(-component)[:5]]))
