#!/usr/bin/env bash
# A plan counts memory without allocating it: a memory limit of the process does not change the plan.
source "$(dirname "$0")/../lib.sh"
cat >config.json <<'END'
{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "dtype": "bfloat16", "vocab_size": 151936, "hidden_size": 5120,
 "num_hidden_layers": 64, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 25600,
 "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "tie_word_embeddings": false, "rope_theta": 1000000.0, "hidden_act": "silu"}
END
mkdir big && cp config.json big/
plan() { timeout 60 "$B" plan --config run.yaml --gpu h200 --gpus 8 --set model.hf_checkpoint="$T/big" parallel.tensor_model_parallel_size=4 rollout.rollout_batch_size=8 >"$1" 2>&1; }
plan free; rc=$?
(ulimit -v 2000000; plan limited); limited=$?
[[ $rc == $limited && ($rc == 0 || $rc == 2) ]] || wrong "status $rc without a limit, $limited with one: $(tail -n 2 limited)"
cmp -s free limited || wrong "another plan under a limit: $(diff free limited | head -n 4)"
