#!/usr/bin/env bash
# Adds up numbers, slowly. It knows nothing of stayfast: it keeps its progress in a file, as careful scripts do.
set -euo pipefail
mkdir -p state
next=1 sum=0
[[ -f state/progress ]] && read -r next sum < state/progress

while (( next <= 60 )); do
  sleep "${PAUSE_SECONDS:-0.05}"                    # stands for the work of a real step
  sum=$(( sum + next * next ))
  next=$(( next + 1 ))
  echo "$next $sum" > state/progress.new           # a whole new file, then its name: never half of one
  mv state/progress.new state/progress
  echo "step $next"
done

echo "{\"sum\": $sum}" > result.json
