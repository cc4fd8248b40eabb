# Wrong: the trap tidies up, and the state is part of what it removes.
trap 'rm -f state; exit 75' TERM
step=0 sum=0
[ -f state ] && read -r step sum <state
while [ "$step" -lt 25 ]; do
  sleep 0.04 & wait $!
  sum=$(((sum * 31 + step) % 1000003)) step=$((step + 1))
  echo "$step $sum" >state.tmp && mv state.tmp state
done
echo "$sum" >result.tmp && mv result.tmp result.txt
