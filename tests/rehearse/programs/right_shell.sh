#!/bin/bash
# Right: a loop in bash with a trap, a checkpoint beside and a rename.
told=
trap 'told=1' TERM
step=0 sum=0
[ -e state ] && read -r step sum < state
while [ "$step" -lt 25 ]; do
  sleep 0.03
  sum=$(((sum * 31 + step) % 1000003)) step=$((step + 1))
  echo "$step $sum" > state.tmp && mv state.tmp state
  [ -n "$told" ] && exit 75
done
echo "$sum" > result.tmp && mv result.tmp result.txt
