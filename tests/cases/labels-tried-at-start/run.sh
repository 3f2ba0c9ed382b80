#!/usr/bin/env bash
# A run, an evaluation and a dry run try the labels on their grader when they start.
source "$(dirname "$0")/../lib.sh"
printf '{"prompt": "%s", "label": "%s"}\n' 1 "#### 72" 2 "is 7" 3 "12" 4 "" >some.jsonl
printf '{"prompt": "%s", "label": "%s"}\n' 1 "so 72" 2 "is 7" >none.jsonl

train --dry-run --set reward.rm_type=gsm8k data.prompt_data=some.jsonl || wrong "some labels can be read: $(cat out)"
grep -q "2 of 4 labels (50 %) cannot be read by gsm8k: some.jsonl:2: .*; some.jsonl:4: " out || wrong "dry run: $(cat out)"
train --set reward.rm_type=gsm8k data.prompt_data=some.jsonl rollout.num_rollout=2 checkpoint.save_interval=0 || wrong "the run ends: $(tail -5 out)"
grep -q "2 of 4 labels" out || wrong "the run says nothing"
[ "$(values run/metrics.jsonl rollout/grader_failed | awk '{ n += $1 } END { print n }')" = 4 ] || wrong "failed samples: $(values run/metrics.jsonl rollout/grader_failed)"
train --set reward.rm_type=gsm8k data.prompt_data=some.jsonl reward.on_failure=stop observe.run_dir=other && wrong "on_failure: stop goes on"
grep -q "at: some.jsonl:2" out || wrong "on_failure: stop: $(tail -5 out)"

train --dry-run --set reward.rm_type=gsm8k data.prompt_data=none.jsonl observe.run_dir=third && wrong "no label can be read, and the dry run is content"
grep -q "at: none.jsonl:1" out || wrong "dry run of none: $(tail -5 out)"
train --set reward.rm_type=gsm8k data.prompt_data=none.jsonl observe.run_dir=third && wrong "no label can be read, and the run starts"
[ ! -e third ] || wrong "a start that is refused leaves a folder"
timeout 60 "$B" eval --hf-checkpoint model --data none.jsonl --set reward.rm_type=math >out 2>&1 && wrong "eval of labels that cannot be read"
grep -q "at: none.jsonl:1" out || wrong "eval: $(tail -5 out)"
