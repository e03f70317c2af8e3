#!/usr/bin/env bash
# A first run on real data: 1797 handwritten digits on 4 ranks (one process with MPI=none). `make demo` calls it as
#
#   jobs/demo.sh target/release/fednmf target/demo
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
binary=${1:-$here/target/release/fednmf}
out=${2:-$here/target/demo}
ranks=4
launcher=("${FEDNMF_MPIRUN:-mpirun}" -n "$ranks")
[ "${MPI:-}" != none ] || { ranks=1; launcher=(); }

# With more ranks than cores, waiting ranks must yield to working ones.
[ "$(nproc)" -ge "$ranks" ] || export OMPI_MCA_mpi_yield_when_idle=1

mkdir -p "$out"
rm -f "$out"/digits.*
run=("${launcher[@]}" "$binary" --input "$here/tests/data/digits.npy" -k 10
    --max-iters 100 --eval-every 10 --seed 1 --trace "$out/digits.jsonl" --output "$out/digits.h5")
printf '%s ' '$' "${run[@]}"
echo
# Through a pipe the progress is one line per evaluation instead of a bar.
"${run[@]}" 2>&1 </dev/null | cat

# The first and the last error of the trace.
sed -n 's/.*"event":"iter".*"rel_error":\([0-9.eE+-]*\).*/\1/p' "$out/digits.jsonl" | awk -v out="$out" -v ranks="$ranks" '
    NR == 1 { first = $1 }
    { last = $1 }
    END {
        if (NR < 2 || !(last < first)) { print "demo: the error did not fall (" first " to " last ")"; exit 1 }
        printf "demo: relative error %.4f -> %.4f in 100 iterations on %d ranks\n", first, last, ranks
        printf "demo: factors in %s/digits.h5, trace in %s/digits.jsonl\n", out, out
    }'
