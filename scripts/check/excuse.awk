# First file: allow.txt with lines "RULE PATH reason"; second: the faults found. PATH may end in "*".
FNR == NR {
  if ($0 ~ /^ *(#|$)/) next
  rule[++count] = $1; path[count] = $2; line[count] = FNR
  if (NF < 4) print "allow " FILENAME ":" FNR ": the line needs a reason"
  next
}
{
  place = $2; sub(/:[0-9]*:?$/, "", place); sub(/:$/, "", place)
  for (i = 1; i <= count; i++) {
    prefix = path[i]
    excused = sub(/\*$/, "", prefix) ? index(place, prefix) == 1 : place == prefix
    if (rule[i] == $1 && excused) { used[i] = 1; next }
  }
  print
}
END {
  for (i = 1; i <= count; i++)
    if (!used[i]) print "allow scripts/check/allow.txt:" line[i] ": no fault matches this line; remove it"
}
