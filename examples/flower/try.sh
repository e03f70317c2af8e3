#!/usr/bin/env bash
# A hub, a SuperLink and three SuperNodes on this machine: a factorisation whose connections Flower carries.
#     PATH=…/bin:$PATH examples/flower/try.sh [DIRECTORY]
# needs fednmf and the flwr package with numpy (pip install "flwr==1.41.*" numpy). The directory is new or empty. All sites have to
# have the same shared factor. Takes some minutes, and fewer with ROUNDS=3.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
platform=flower
options="--algo fnmf --secure-sum -k 3 --max-iters ${ROUNDS:-20} --eval-every 5"
# shellcheck source=examples/sites.sh
. "$here/../sites.sh"
export FLWR_HOME=$dir/flwr FLWR_TELEMETRY_ENABLED=0

hub
flower-superlink --insecure --disable-runtime-dependency-installation >superlink.log 2>&1 &
processes+=($!)
for _ in {1..120}; do
    (: <>/dev/tcp/127.0.0.1/8000) 2>/dev/null && break
    sleep 1
done
port=9200
for site in north south west; do
    flower-supernode --insecure --superlink 127.0.0.1:8000 --port $port --isolation process >"$site/node.log" 2>&1 &
    processes+=($!)
    PYTHONPATH=$here python -m fednmf_flower.carrier "$site" "127.0.0.1:$port" >"$site/carrier.log" 2>&1 &
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
compare
