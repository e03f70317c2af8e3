#!/usr/bin/env python3
"""Writes the small matrices of this directory as SciPy, h5py, anndata and pandas write them: make.py (in this directory).

Made with numpy 2.4.6, scipy 1.17.1, h5py 3.16.0, anndata 0.12.19, pandas, pyarrow 26.0.1; needed only to make them again.
"counts" is one 40 x 30 matrix of counts in every sparse format, "table" one 12 x 7 matrix of eighths in every dense one.
"""

import anndata
import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.io
import scipy.sparse as sp

rng = np.random.default_rng(7)
counts = sp.csr_matrix(rng.poisson(0.25, (40, 30)).astype(np.float32))
table = rng.integers(0, 80, (12, 7)) / 8.0

scipy.io.mmwrite("counts.mtx", counts.astype(np.int64))
sp.save_npz("counts-csr.npz", counts)
sp.save_npz("counts-csc-plain.npz", counts.tocsc(), compressed=False)
sp.save_npz("counts-coo.npz", counts.tocoo())
dense = counts.toarray()
np.savez("arrays.npz", dense)

np.save("table-fortran.npy", np.asfortranarray(table))
np.save("table-f16.npy", table.astype(np.float16))
np.save("table-big-endian.npy", (table * 8).astype(">i8"))
np.savetxt("table.txt", table)
names = [f"gene {j}, 'x'" for j in range(7)]
frame = pd.DataFrame(table, index=[f"cell{i}" for i in range(12)], columns=names)
frame.to_csv("table.csv")
frame.to_csv("table.tsv.gz", sep="\t")
pd.DataFrame(table).to_csv("table-plain.csv", header=False, index=False)
frame.to_parquet("table.parquet", row_group_size=5)
unnoted = pa.Table.from_pandas(frame.reset_index()).replace_schema_metadata(None)
pq.write_table(unnoted, "table-arrow.parquet", compression="zstd", data_page_version="2.0")

# AnnData: cells x genes, X in CSR, a dense and a CSC layer
adata = anndata.AnnData(counts, layers={"csc": counts.tocsc(), "dense": dense})
adata.write_h5ad("counts.h5ad", compression="gzip")
anndata.AnnData(dense).write_h5ad("dense.h5ad")

# 10x Cell Ranger 3: genes x cells, stored by cells (here: the transpose of "counts", so that its cells are the rows)
csc = counts.T.tocsc()
with h5py.File("counts-10x.h5", "w") as f:
    g = f.create_group("matrix")
    g.create_dataset("data", data=csc.data.astype(np.int32), chunks=True, compression="gzip")
    g.create_dataset("indices", data=csc.indices.astype(np.int64), chunks=True, compression="gzip")
    g.create_dataset("indptr", data=csc.indptr.astype(np.int64))
    g.create_dataset("shape", data=np.array(csc.shape, dtype=np.int32))
    g.create_dataset("barcodes", data=np.array([f"cell-{i}" for i in range(csc.shape[1])], dtype="S"))

with h5py.File("table.h5", "w") as f:
    f.create_dataset("deep/one", data=table, chunks=(5, 3), compression="gzip")
    f.create_dataset("deep/int", data=(table * 8).astype("i4"))
    f.create_dataset("deep/bool", data=table > 4)
    f.create_dataset("deep/text", data=np.array([[b"a", b"b"]]))
    f.create_dataset("table", data=table.astype("f4"))

with h5py.File("packed.h5", "w") as f:
    f.create_dataset("lzf", data=table, chunks=(5, 3), compression="lzf", shuffle=True)
    f.create_dataset("half", data=table.astype(np.float16))

# Loom: genes x cells
with h5py.File("counts.loom", "w") as f:
    f.create_dataset("matrix", data=dense.T, chunks=(16, 16), compression="gzip")
    f.create_dataset("row_attrs/Gene", data=[f"gene-{j}" for j in range(30)], dtype=h5py.string_dtype())
    f.create_dataset("col_attrs/CellID", data=[f"cell-{i}" for i in range(40)], dtype=h5py.string_dtype())
    for group in ("layers", "row_graphs", "col_graphs"):
        f.create_group(group)

with open("baskets.dat", "w") as f:
    for row in counts:
        f.write(" ".join(str(j + 1) for j in row.indices) + "\n")
