"""Writes seurat_v3.json: counts, and the scores of scanpy's rule seurat_v3, for the test of prepare --variable-by seurat-v3."""
import json

import anndata
import numpy as np
import scanpy

ROWS, COLUMNS = 40, 90

random = np.random.default_rng(7)
means = 10 ** random.uniform(-0.5, 1.2, COLUMNS)
# The larger the shape, the closer to a Poisson number.
shapes = random.uniform(0.3, 8, COLUMNS)
counts = random.poisson(random.gamma(shapes, means / shapes, (ROWS, COLUMNS))).astype(float)
counts[:, 5] = 2
cells = anndata.AnnData(counts)
scanpy.pp.highly_variable_genes(cells, flavor="seurat_v3", n_top_genes=20)
with open("seurat_v3.json", "w") as file:
    json.dump({"counts": counts.astype(int).tolist(), "variances_norm": cells.var["variances_norm"].tolist()}, file)
    file.write("\n")
