#!/usr/bin/env bash
# A plan for 4,096 ranks takes seconds, and its memory grows with the ranks, not with pairs of ranks.
source "$(dirname "$0")/../lib.sh"
cat >config.json <<'END'
{"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "dtype": "bfloat16", "vocab_size": 151936, "hidden_size": 2048,
 "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144,
 "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": true, "max_position_embeddings": 40960,
 "rms_norm_eps": 1e-6, "tie_word_embeddings": false, "rope_theta": 1000000.0, "hidden_act": "silu"}
END
mkdir big && cp config.json big/
(ulimit -v 3000000; ulimit -t 60; "$B" plan --config run.yaml --gpu h200 --gpus 4096 --set model.hf_checkpoint="$T/big" rollout.rollout_batch_size=1024 \
  rollout.n_samples_per_prompt=8 rollout.kv_cache_gib=8 parallel.expert_model_parallel_size=8 >out 2>&1) || wrong "status $?: $(tail -n 2 out)"
grep -q '4096 ranks' out || wrong "no plan of 4096 ranks: $(head -n 5 out)"
