#!/usr/bin/env python3
"""Writes tests/model/config/family_defaults.jsonl: configurations with few keys, and the properties of the models that transformers builds from them.

    make_family_defaults.py --out tests/model/config/family_defaults.jsonl

One line per family and change of its config.json: "config", and "expect" with the values of the modules, not of the
configuration. Needs torch and transformers >= 5.24.
"""
import argparse, json, pathlib, tempfile
import torch, transformers

SIZES = dict(vocab_size=64, hidden_size=32, intermediate_size=8, num_hidden_layers=4)
LATENT = dict(num_attention_heads=4, num_key_value_heads=4, kv_lora_rank=8, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8)
EXPERTS = dict(moe_intermediate_size=8, num_experts_per_tok=2, n_routed_experts=16)
FAMILIES = {  # num_attention_heads is the class's default number of key heads
    "llama": ("Llama", dict(num_attention_heads=4)),
    "qwen2": ("Qwen2", dict(num_attention_heads=32, hidden_size=128)),
    "qwen3": ("Qwen3", dict(num_attention_heads=32)),
    "qwen3_moe": ("Qwen3Moe", dict(num_attention_heads=4, moe_intermediate_size=8, num_experts=6, num_experts_per_tok=2)),
    "glm4": ("Glm4", dict(num_attention_heads=4, pad_token_id=0)),
    "glm4_moe": ("Glm4Moe", dict(num_attention_heads=8, **EXPERTS)),
    "glm4_moe_lite": ("Glm4MoeLite", dict(**LATENT, **EXPERTS)),
    "deepseek_v3": ("DeepseekV3", dict(**LATENT, **EXPERTS)),
    "glm_moe_dsa": ("GlmMoeDsa", dict(**LATENT, **EXPERTS)),
}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0}
STRETCHED = {**YARN, "original_max_position_embeddings": 24}
ROPES = {
    "linear": dict(rope_scaling={"type": "linear", "factor": 4.0}),
    "linear, mscale_all_dim": dict(rope_scaling={"type": "linear", "factor": 4.0, "mscale_all_dim": 1.0}),
    "llama3, no length": dict(rope_scaling=LLAMA3),
    "llama3, mscale_all_dim": dict(rope_scaling={**LLAMA3, "original_max_position_embeddings": 24, "mscale_all_dim": 0.7}),
    "yarn, no length": dict(rope_scaling=YARN),
    "yarn, max_position_embeddings": dict(rope_scaling=YARN, max_position_embeddings=48),
    "yarn, outer length": dict(rope_parameters={**YARN, "rope_theta": 50.0}, original_max_position_embeddings=20),
    "yarn, two lengths": dict(rope_scaling=STRETCHED, original_max_position_embeddings=200),
    "yarn, two objects": dict(rope_scaling=STRETCHED, rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 7.0}),
    "yarn, mscale alone": dict(rope_scaling={**STRETCHED, "mscale": 0.7}),
    "yarn, mscale_all_dim alone": dict(rope_scaling={**STRETCHED, "mscale_all_dim": 0.7}),
    "yarn, mscale null": dict(rope_scaling={**STRETCHED, "mscale": None, "mscale_all_dim": 0.7}),
    "yarn, mscale 0": dict(rope_scaling={**STRETCHED, "mscale": 0, "mscale_all_dim": 0.7}),
    "yarn, mscale_all_dim null": dict(rope_scaling={**STRETCHED, "mscale": 0.7, "mscale_all_dim": None}),
    "yarn, mscale_all_dim 0": dict(rope_scaling={**STRETCHED, "mscale": 0.7, "mscale_all_dim": 0}),
    "yarn, both": dict(rope_scaling={**STRETCHED, "mscale": 0.7, "mscale_all_dim": 1.3}),
    "yarn, attention_factor": dict(rope_scaling={**STRETCHED, "mscale": 0.7, "mscale_all_dim": 1.3, "attention_factor": 1.1}),
    "yarn, nulls": dict(rope_scaling={**STRETCHED, "attention_factor": None, "beta_fast": None, "beta_slow": None}),
    "yarn, shrunk": dict(rope_scaling={**STRETCHED, "factor": 0.5, "mscale_all_dim": 1.0}),
    "partial_rotary_factor null": dict(partial_rotary_factor=None),
}
ROUTING = {
    "norm_topk_prob false": dict(norm_topk_prob=False),
    "n_group alone": dict(n_group=4), "topk_group alone": dict(topk_group=1), "groups": dict(n_group=4, topk_group=2),
    "no shared expert": dict(n_shared_experts=0), "3 shared experts": dict(n_shared_experts=3),
    "routed_scaling_factor": dict(routed_scaling_factor=0.5),
    "dense layers by list": dict(mlp_layer_types=["sparse", "dense", "dense", "sparse"]),
    "no dense layer": dict(first_k_dense_replace=0), "more dense layers than layers": dict(first_k_dense_replace=9),
}
WINDOW = dict(use_sliding_window=True, sliding_window=4)
MORE = {
    "qwen2": {"window behind the last layer": dict(**WINDOW, max_window_layers=4), "window of layer 28": WINDOW,
              "no layer with a window": dict(**WINDOW, max_window_layers=0, layer_types=["full_attention"] * 4)},
    "qwen3": {"window behind the last layer": dict(**WINDOW, max_window_layers=4), "attention_bias": dict(attention_bias=True)},
    "qwen3_moe": {"groups of another family": dict(n_group=3, topk_group=1), "a window of null": {**WINDOW, "sliding_window": None},
                  "every second layer": dict(decoder_sparse_step=2), "dense layers by list": dict(mlp_only_layers=[1])},
    "glm4_moe": ROUTING | {"use_qk_norm": dict(use_qk_norm=True)},
    "glm4_moe_lite": ROUTING | {"rope_interleave false": dict(rope_interleave=False), "q_lora_rank null": dict(q_lora_rank=None)},
    "deepseek_v3": ROUTING | {"norm_topk_prob null": dict(norm_topk_prob=None), "rope_interleave null": dict(rope_interleave=None),
                              "q_lora_rank null": dict(q_lora_rank=None), "num_key_value_heads null": dict(num_key_value_heads=None)},
    "glm_moe_dsa": ROUTING | {"index_topk_freq": dict(index_topk_freq=3), "index_skip_topk_offset": dict(index_topk_freq=2, index_skip_topk_offset=1),
                              "index_topk_pattern": dict(index_topk_pattern="FSSF"), "head_dim": dict(head_dim=192),
                              "layer_types": dict(layer_types=["indexed_attention"] * 4),
                              "layer_types of before": dict(layer_types=["deepseek_sparse_attention"] * 4)},
}
# Transformers reads these keys in some families only. slimexx reads them in all families, and rejects weights of other layers.
REFUSED = {("glm4_moe", "dense layers by list"), ("deepseek_v3", "dense layers by list"),
           ("glm4_moe_lite", "no dense layer"), ("glm4_moe_lite", "more dense layers than layers")}


def has_bias(module):
    return getattr(module, "bias", None) is not None


def facts_of(model):
    layers, config = model.model.layers, model.config
    attention, rotary = layers[0].self_attn, model.model.rotary_emb
    facts = {"tied": config.tie_word_embeddings, "max_positions": config.max_position_embeddings,
             "rms_norm_eps": model.model.norm.variance_epsilon, "frequencies": [float(f"{x:.8g}") for x in rotary.inv_freq.tolist()],
             "table_scale": rotary.attention_scaling, "score_scale": attention.scaling, "o_bias": has_bias(attention.o_proj)}
    if hasattr(attention, "kv_b_proj"):
        facts |= {"q_rank": attention.q_lora_rank or 0, "interleaved": config.model_type == "glm_moe_dsa" or bool(config.rope_interleave)}
    else:
        facts |= {"head_dim": attention.head_dim, "num_kv_heads": attention.k_proj.out_features // attention.head_dim,
                  "qkv_bias": has_bias(attention.q_proj), "qk_norm": hasattr(attention, "q_norm")}
    if hasattr(config, "num_experts_per_tok"):
        sparse = [i for i, layer in enumerate(layers) if hasattr(layer.mlp, "experts")]
        facts["sparse_layers"] = sparse
    if hasattr(config, "num_experts_per_tok") and sparse:
        moe = layers[sparse[0]].mlp
        shared = getattr(moe, "shared_experts", None)
        facts |= {"top_k": moe.gate.top_k, "normalized": bool(moe.gate.norm_topk_prob), "groups": getattr(moe.gate, "num_group", 1),
                  "kept_groups": getattr(moe.gate, "topk_group", 1), "scaling_factor": getattr(moe.gate, "routed_scaling_factor", 1.0),
                  "shared": 0 if shared is None else shared.gate_proj.out_features}
    if hasattr(attention, "indexer"):
        facts |= {"full_layers": [i for i, layer in enumerate(layers) if layer.self_attn.indexer is not None],
                  "selected": attention.indexer.index_topk, "index_heads": attention.indexer.n_heads, "index_dim": attention.indexer.head_dim}
    return facts


def make(family, name, changes):
    cls, sizes = FAMILIES[family]
    small = {"head_dim": 8} if changes and family in ("qwen3", "glm4") else {}  # smaller than their default of 128
    raw = {"model_type": family, **SIZES, **sizes, **small, **changes}
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(raw))
        config = transformers.AutoConfig.from_pretrained(folder)
    with torch.random.fork_rng():
        facts = facts_of(getattr(transformers, cls + "ForCausalLM")(config))
    return json.dumps({"name": f"{family}: {name}", "config": raw, "expect": facts})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    with open(parser.parse_args().out, "w") as out:
        for family in FAMILIES:
            for name, changes in ({"silent": {}} | ROPES | MORE.get(family, {})).items():
                if (family, name) not in REFUSED:
                    out.write(make(family, name, changes) + "\n")
