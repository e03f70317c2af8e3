"""Snakemake wrapper: factorises a matrix with fednmf, on as many ranks as the rule has threads.

    rule factorise:
        input: "counts.mtx.gz"
        output: factors="factors.h5", report="report.html"    # also: trace
        params: k=20, extra="--algo kl-cd --tol 1e-4"          # extra is optional
        threads: 4
        log: "factorise.log"
        wrapper: "file:packaging/snakemake"

fednmf, and with more than one thread mpirun, must be on the PATH.
"""

import shlex

from snakemake.shell import shell

names = set(snakemake.output.keys()) - {"factors", "report", "trace"}  # noqa: F821
if names or not snakemake.output.get("factors"):  # noqa: F821
    raise ValueError("output: factors is required; report and trace are possible, and no others")
outputs = {"output" if name == "factors" else name: path for name, path in snakemake.output.items()}  # noqa: F821
files = " ".join(f"--{option} {shlex.quote(path)}" for option, path in outputs.items())
launch = f"mpirun -n {snakemake.threads} " if snakemake.threads > 1 else ""  # noqa: F821
extra = snakemake.params.get("extra", "")  # noqa: F821
log = snakemake.log_fmt_shell(stdout=True, stderr=True)  # noqa: F821

shell("{launch}fednmf --input {snakemake.input[0]:q} -k {snakemake.params.k} {extra} {files} {log}")
