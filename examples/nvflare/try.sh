#!/usr/bin/env bash
# A hub, and NVFlare's simulator with three clients: a factorisation whose connections NVFlare carries. PATH=…/bin:$PATH
# examples/nvflare/try.sh [DIRECTORY] needs fednmf and the commands of the nvflare package (pip install nvflare). The
# result is compared with that of the same run without NVFlare.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dir=${1:-$(mktemp -d)}
mkdir -p "$dir"
cd "$dir"
rm -rf keys north south west
unset https_proxy HTTPS_PROXY no_proxy NO_PROXY http_proxy HTTP_PROXY
processes=()
end() {
    for process in "${processes[@]}"; do kill "$process" 2>/dev/null || true; done
    wait 2>/dev/null || true
}
trap end EXIT

fednmf keygen keys --sites north,south,west --hub localhost >/dev/null
options="--algo fnmf --secure-sum -k 3 --max-iters 20 --eval-every 5 --patience 120 --stall-timeout 3000"
seed=0
for site in north south west; do
    seed=$((seed + 1))
    mkdir "$site"
    fednmf generate planted,m=40,n=30,seed=$seed --output "$site/rows.npy" 2>/dev/null
    # What the site agrees to run; nobody else writes this file.
    cat >"$site/join.sh" <<END
exec fednmf join --hub localhost:7443 --cert ../keys/$site.pem --key ../keys/$site.key --ca ../keys/ca.pem \\
    $options --input rows.npy --output \${OUTPUT:-nvflare.npz}
END
done

hub() {
    fednmf serve --listen "127.0.0.1:7443" --sites north,south,west --cert keys/hub.pem --key keys/hub.key \
        --ca keys/ca.pem --patience 120 2>>hub.log &
    processes+=($!)
    hub=$!
    sleep 1
}

# Without NVFlare.
hub
joins=()
for site in north south west; do
    (cd "$site" && OUTPUT=direct.npz sh join.sh >direct.log 2>&1) &
    joins+=($!)
done
for join in "${joins[@]}"; do wait "$join"; done
wait "$hub"

# With NVFlare.
hub
rm -rf job workspace
cp -r "$here/job" job
cp "$here/../flower/fednmf_flower/tunnel.py" job/app/custom/
FEDNMF_SITES=$dir nvflare simulator job -w workspace -c north,south,west -t 3 >nvflare.log 2>&1
wait "$hub"
python - <<'END'
import numpy

for site in ["north", "south", "west"]:
    direct, carried = (numpy.load(f"{site}/{name}.npz")["V"] for name in ["direct", "nvflare"])
    assert direct.tobytes() == carried.tobytes(), f"{site}: another V"
print("Each site has the V that it has without NVFlare, to the bit.")
END
