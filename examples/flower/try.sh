#!/usr/bin/env bash
# A hub, a SuperLink and three SuperNodes on this machine: a factorisation whose connections Flower carries.
#     PATH=…/bin:$PATH examples/flower/try.sh [DIRECTORY]
# needs fednmf and the commands of the flwr package (pip install flwr). The result is compared with that of the same run
# without Flower.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dir=${1:-$(mktemp -d)}
mkdir -p "$dir"
cd "$dir"
rm -rf keys north south west
export FLWR_HOME=$dir/flwr FLWR_TELEMETRY_ENABLED=0
unset https_proxy HTTPS_PROXY no_proxy NO_PROXY http_proxy HTTP_PROXY
processes=()
end() {
    for process in "${processes[@]}"; do kill "$process" 2>/dev/null || true; done
    wait 2>/dev/null || true
}
trap end EXIT

fednmf keygen keys --sites north,south,west --hub localhost >/dev/null
options="--algo fnmf --secure-sum -k 3 --max-iters 1 --eval-every 0 --patience 120 --stall-timeout 3000"
seed=0
for site in north south west; do
    seed=$((seed + 1))
    mkdir "$site"
    fednmf generate planted,m=40,n=30,seed=$seed --output "$site/rows.npy" 2>/dev/null
    # What the site agrees to run; nobody else writes this file.
    cat >"$site/join.sh" <<END
exec fednmf join --hub localhost:7443 --cert ../keys/$site.pem --key ../keys/$site.key --ca ../keys/ca.pem \\
    $options --input rows.npy --output \${OUTPUT:-flower.npz}
END
done

hub() {
    fednmf serve --listen "127.0.0.1:7443" --sites north,south,west --cert keys/hub.pem --key keys/hub.key \
        --ca keys/ca.pem --patience 120 2>>hub.log &
    processes+=($!)
    hub=$!
    sleep 1
}

# Without Flower.
hub
joins=()
for site in north south west; do
    (cd "$site" && OUTPUT=direct.npz sh join.sh >direct.log 2>&1) &
    joins+=($!)
done
for join in "${joins[@]}"; do wait "$join"; done
wait "$hub"

# With Flower.
hub
flower-superlink --insecure --disable-runtime-dependency-installation >superlink.log 2>&1 &
processes+=($!)
sleep 5
port=9200
for site in north south west; do
    flower-supernode --insecure --superlink 127.0.0.1:8000 --port $port --node-config "site=\"$dir/$site\"" \
        >"$site/node.log" 2>&1 &
    processes+=($!)
    port=$((port + 1))
done
mkdir -p "$FLWR_HOME"
cat >"$FLWR_HOME/config.toml" <<'END'
[superlink]
default = "here"

[superlink.here]
address = "127.0.0.1:8000"
insecure = true
END
cp -r "$here" app
flwr run app here --stream 2>&1 | tee run.log
wait "$hub"
python - <<'END'
import numpy

for site in ["north", "south", "west"]:
    direct, carried = (numpy.load(f"{site}/{name}.npz")["V"] for name in ["direct", "flower"])
    assert direct.tobytes() == carried.tobytes(), f"{site}: another V"
print("Each site has the V that it has without Flower, to the bit.")
END
