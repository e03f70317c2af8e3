#!/usr/bin/env bash
# A hub, and NVFlare's simulator with three clients: a factorisation whose connections NVFlare carries.
#     PATH=…/bin:$PATH examples/nvflare/try.sh [DIRECTORY]
# needs fednmf and the commands of the nvflare package (pip install nvflare). The directory is new or empty. All sites
# have to have the same shared factor.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
platform=nvflare
options="--algo fnmf --secure-sum -k 3 --max-iters 20 --eval-every 5"
# shellcheck source=examples/sites.sh
. "$here/../sites.sh"

hub
cp -r "$here/job" job
cp "$here/../flower/fednmf_flower/tunnel.py" job/app/custom/
FEDNMF_SITES=$dir nvflare simulator job -w workspace -c north,south,west -t 3 >nvflare.log 2>&1
wait "$hub"
compare
