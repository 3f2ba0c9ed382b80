# With an unreachable reward service, grade fails at once and names its flag; a dry run asks once and goes on.
source "$(dirname "$0")/../lib.sh"
url=http://127.0.0.1:1/reward
printf '{"response": "a", "label": "b"}\n' >rows.jsonl
timeout 10 "$B" grade --rm-type remote --rm-url $url --input rows.jsonl >out 2>&1; rc=$?
[ $rc = 4 ] && grep -q 'cannot be reached' out && grep -q 'at: --rm-url' out || wrong "grade: status $rc: $(cat out)"
start=$SECONDS
train --dry-run --set reward.rm_type=remote reward.rm_url=$url || wrong "the dry run: $(cat out)"
[ $((SECONDS - start)) -lt 10 ] || wrong "the dry run took $((SECONDS - start)) s"
grep -q "the service at $url cannot be reached" out || wrong "the dry run says nothing: $(cat out)"
