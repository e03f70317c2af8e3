# shellcheck shell=bash disable=SC2154,SC2164
# What the examples of sites have in common: keys, data and a script for each of three sites, and a hub. Sourced, with
# `options` of the method, the name of the `platform`, and the directory as the first argument.

dir=${1:-$(mktemp -d)}
mkdir -p "$dir"
cd "$dir"
dir=$PWD
[ -z "$(ls -A)" ] || { echo "$dir is not empty; give a new directory" >&2; exit 2; }
unset https_proxy HTTPS_PROXY no_proxy NO_PROXY http_proxy HTTP_PROXY
processes=()
end() {
    for process in "${processes[@]}"; do kill "$process" 2>/dev/null || true; done
    wait 2>/dev/null || true
}
trap end EXIT

fednmf keygen keys --sites north,south,west --hub localhost >/dev/null
seed=0
for site in north south west; do
    seed=$((seed + 1))
    mkdir "$site"
    fednmf generate planted,m=400,n=30,seed=$seed --output "$site/rows.npy" 2>/dev/null
    # What the site agrees to run; nobody else writes this file.
    cat >"$site/join.sh" <<END
exec fednmf join --hub localhost:7443 --cert ../keys/$site.pem --key ../keys/$site.key --ca ../keys/ca.pem \\
    --no-policy $options --patience 120 --stall-timeout 3000 --input rows.npy --output $platform.npz
END
done

hub() { # starts it, and keeps its process in $hub
    fednmf serve --listen "127.0.0.1:7443" --sites north,south,west --cert keys/hub.pem --key keys/hub.key \
        --ca keys/ca.pem --patience 120 2>>hub.log &
    processes+=($!)
    hub=$!
    sleep 1
}

compare() { # after the run with the platform
    python - "$platform" <<'END'
import sys

import numpy


def v(path):
    return numpy.load(path)["V"].tobytes()


platform = sys.argv[1]
for site in ["south", "west"]:
    assert v(f"{site}/{platform}.npz") == v(f"north/{platform}.npz"), f"{site}: another V"
print("All sites have the same V, to the bit.")
END
}
