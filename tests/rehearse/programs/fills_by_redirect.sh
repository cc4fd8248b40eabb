# Wrong: a file that is not empty is taken for a whole one, and it is filled line by line through standard output.
trap 'exit 143' TERM
if [ ! -s data.txt ]; then
  for number in $(seq 1 20); do
    echo "$number"
    sleep 0.03
  done > data.txt
fi
sum=0 done=0
if [ -e state ]; then read -r sum done < state; fi
while read -r number; do
  if [ "$number" -gt "$done" ]; then
    sleep 0.03
    sum=$((sum + number))
    echo "$sum $number" > state.tmp
    mv state.tmp state
  fi
done < data.txt
echo "$sum" > result.tmp
mv result.tmp result.txt
