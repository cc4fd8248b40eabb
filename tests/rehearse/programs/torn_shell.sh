#!/bin/bash
# Wrong: the checkpoint is written in place, and an empty one is an error.
set -eu
told=
trap 'told=1' TERM
step=0 sum=0
[ -e state ] && read -r step sum < state
while [ "$step" -lt 25 ]; do
  sleep 0.03
  sum=$(((sum * 31 + step) % 1000003)) step=$((step + 1))
  echo "$step $sum" > state
  [ -n "$told" ] && exit 75
done
echo "$sum" > result.tmp && mv result.tmp result.txt
