#!/usr/bin/env bash
# run.sh LEAT LEAT_BENCH [SECONDS [REQUESTS]]: short connections through a lab, one request each, and the steering entries that are left. As root.
set -euo pipefail
leat=$1 bench=$2 seconds=${3:-300} requests=${4:-1000000}
lab=flows$$ folder=$(mktemp -d)
trap '"$leat" lab --name "$lab" down; rm -rf "$folder"' EXIT
mkdir "$folder/site"
echo hello > "$folder/site/index.html"
printf '0f%.0s' {1..32} > "$folder/cluster.key"
cat > "$folder/cluster.toml" <<END
[admin]
listen = '127.0.0.1:9180'
[cluster]
vip = '10.77.0.100:80'
dispatchers = '10.77.0.1'
key_file = 'cluster.key'
policy = 'round_robin'
[[cluster.node]]
name = 'n1'
address = '10.77.0.11'
[[cluster.node]]
name = 'n2'
address = '10.77.0.12'
[[site]]
root = 'site'
END
"$leat" lab --name "$lab" up "$folder/cluster.toml" > /dev/null
at() { local host=$1; shift; nsenter --net="/run/netns/leat-lab-$lab-$host" "$@"; }
numbers() {
    at dispatcher curl -s http://127.0.0.1:9180/metrics |
        grep -E '^leat_(flow_entries|flows|births_total|handoffs_total|flows_cut_total|handoffs_refused_total) '
}
at client1 "$bench" load 10.77.0.100:80 / --connections 64 --requests-per-connection 1 --warm-up-s 0 --seconds "$seconds" --requests-max "$requests"
echo "== at once"; numbers
began=$SECONDS
until numbers | grep -q '^leat_flow_entries 0$' || [ $((SECONDS - began)) -gt 180 ]; do sleep 1; done
echo "== after $((SECONDS - began)) s"; numbers
