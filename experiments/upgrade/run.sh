#!/usr/bin/env bash
# run.sh LEAT LEAT_BENCH [UPGRADES]: load with idle and slow connections, first alone, then while leat is upgraded again and again.
set -euo pipefail
leat=$1 bench=$2 upgrades=${3:-100}
folder=$(mktemp -d)
trap 'kill "$server" 2>/dev/null; rm -rf "$folder"' EXIT
mkdir "$folder/www"
head -c 2000 /dev/urandom > "$folder/www/small"
head -c 4000000 /dev/urandom > "$folder/www/large"
printf 'workers = 2\n[[site]]\nroot = "www"\nlisten = "127.0.0.1:0"\n[limits]\nidle_timeout = "1h"\n[admin]\nlisten = ""\n' > "$folder/leat.toml"
"$leat" serve --config "$folder/leat.toml" > "$folder/out" 2> "$folder/err" &
server=$!
until grep -qs listening "$folder/out"; do kill -0 "$server"; done
address=$(sed -n 's|.*http://\([^/]*\)/.*|\1|p' "$folder/out" | head -1)

load() {
    "$bench" load "$address" /small=0.999 /large=0.001 --rate 500 --connections 64 --idle 500 --slow 20 --slow-bytes-per-s 100000 \
        --seconds "$1" --sleep
}
engine() { pgrep -P "$server" -f "^[^ ]* engine" | sort -n | tail -1; }

echo "== alone"; load 15
echo "== during upgrades"
load "${SECONDS_MAX:-60}" & generator=$!
sleep 2 # the connections open
done_count=0
while [ "$done_count" -lt "$upgrades" ] && kill -0 "$generator" 2>/dev/null; do
    old=$(engine)
    kill -USR2 "$server"
    # It ends when its connections have gone.
    while kill -0 "$old" 2>/dev/null; do sleep 0.01; done
    done_count=$((done_count + 1))
done
echo "upgrades    $done_count, of which $(grep -c 'the old one ends' "$folder/err") old engines told that they ended empty"
wait "$generator"
