#!/usr/bin/env bash
# run.sh LEAT LEAT_BENCH [SECONDS [REQUESTS [FOLDER]]]: short connections through a lab, one request each, and the steering entries that are left. As root.
# With a folder, writes result.json there.
set -euo pipefail
leat=$1 bench=$2 seconds=${3:-300} requests=${4:-1001000} out=${5:-}
date=$(date -u +%Y-%m-%dT%H:%M:%SZ)
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
at client1 "$bench" load 10.77.0.100:80 / --connections 64 --requests-per-connection 1 --warm-up-s 0 --seconds "$seconds" --requests-max "$requests" |
    tee "$folder/load"
echo "== at once"; numbers
began=$SECONDS
until numbers | grep -q '^leat_flow_entries 0$' || [ $((SECONDS - began)) -gt 180 ]; do sleep 1; done
echo "== after $((SECONDS - began)) s"; numbers | tee "$folder/numbers"
[ -n "$out" ] || exit 0
number() { awk -v name="$1" '$1 == name { print $2 }' "$folder/numbers"; }
answered=$(sed -n 's/^requests .*(\([0-9]*\) in .*/\1/p' "$folder/load")
mark() { # WORDS VALUE LIMIT
    printf '    {"case": "a million connections", "subject": "leat", "mark": "%s", "value": %s, "limit": %s, "unit": "", "met": %s, "note": ""}' \
        "$1" "$2" "$3" "$([ "$2" -le "$3" ] && echo true || echo false)"
}
cat > "$out/result.json" <<END
{
  "experiment": "flows",
  "kernel": "$(uname -r)",
  "cpu": "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)",
  "cores": $(nproc),
  "congestion_control": "$(cat /proc/sys/net/ipv4/tcp_congestion_control)",
  "commit": "$(git rev-parse --short=12 HEAD 2> /dev/null)",
  "date": "$date",
  "rounds": 1,
  "seconds": $seconds,
  "results": [
$(mark "steering entries that are left after three minutes at most" "$(number leat_flow_entries)" 0),
$(mark "answered connections that a million lacks" $((1000000 > answered ? 1000000 - answered : 0)) 0),
$(mark "connections that were cut" "$(number leat_flows_cut_total)" 0)
  ],
  "informative": [],
  "conditions": []
}
END
