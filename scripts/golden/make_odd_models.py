#!/usr/bin/env python3
"""Writes tests/golden/models/<family>_odd/: for each family a tiny checkpoint whose config.json no publisher would write: keys that
are absent, null or spelled in the older way, sizes with few divisors, options that exclude each other in practice. Also writes what
PyTorch and transformers compute on it in float32, as make_dense_models.py does.

    make_odd_models.py --out tests/golden/models [--only llama,...]

Needs torch and transformers >= 5.24. config.json has exactly the keys below; transformers reads it as the config.json of a checkpoint.
"""
import argparse, json, pathlib, tempfile
import torch, transformers
from safetensors.torch import load_file, save_file
from make_oracle import gradients, grpo_loss, on_disk, per_token, randomise

SIZES = dict(vocab_size=79, hidden_size=20, intermediate_size=27, num_hidden_layers=3, num_attention_heads=4, dtype="float32")
LATENT = dict(num_key_value_heads=4, q_lora_rank=9, kv_lora_rank=7, qk_nope_head_dim=5, qk_rope_head_dim=6, v_head_dim=3)
EXPERTS = dict(moe_intermediate_size=5, num_experts_per_tok=3, n_routed_experts=6)
YARN = {"type": "yarn", "factor": 4.0}
CASES = {
    # As many key heads as heads, by default; the outer original_max_position_embeddings wins.
    "llama": dict(model_type="llama", vocab_size=73, tie_word_embeddings=True, attention_bias=True, head_dim=6,
                  original_max_position_embeddings=24, rope_theta=50.0,
                  rope_scaling={"type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                "original_max_position_embeddings": 500}),
    # A sliding window after the last layer; yarn with the outer original length and a null scale.
    "qwen2": dict(model_type="qwen2", num_hidden_layers=2, num_attention_heads=5, num_key_value_heads=None, use_sliding_window=True,
                  sliding_window=4, max_window_layers=2, original_max_position_embeddings=20,
                  rope_parameters={"rope_type": "yarn", "factor": 4.0, "rope_theta": 100.0, "mscale": None, "mscale_all_dim": 1.0}),
    # The object in both spellings (rope_scaling, rope_parameters); yarn without an original length.
    "qwen3": dict(model_type="qwen3", num_attention_heads=3, num_key_value_heads=1, head_dim=10, attention_bias=True,
                  tie_word_embeddings=True, max_position_embeddings=48, rope_theta=30.0,
                  rope_scaling={**YARN, "beta_fast": None, "mscale": 0, "mscale_all_dim": 0.7},
                  rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 7.0}),
    # partial_rotary_factor null is not the family's default: whole heads rotate.
    "glm4": dict(model_type="glm4", num_attention_heads=6, head_dim=6, partial_rotary_factor=None, pad_token_id=0,
                 rope_scaling={"rope_type": "linear", "factor": 3.0}, rms_norm_eps=1e-3),
    # Keys of groups, which this family does not have; the router's weights are not normalised.
    "qwen3_moe": dict(model_type="qwen3_moe", moe_intermediate_size=5, num_local_experts=6, num_experts_per_tok=3, n_group=3,
                      topk_group=1, mlp_only_layers=[1], hidden_size=24, tie_word_embeddings=True),
    # Shared experts of width 0, whose matrices are stored empty; head_dim is hidden_size / num_attention_heads.
    "glm4_moe": dict(model_type="glm4_moe", **EXPERTS, num_attention_heads=5, num_key_value_heads=5, use_qk_norm=True,
                     n_shared_experts=0, n_group=3, topk_group=2, first_k_dense_replace=0, attention_bias=True,
                     rope_scaling={**YARN, "original_max_position_embeddings": 24, "partial_rotary_factor": 1.0}),
    # mscale_all_dim with a scaling that is not yarn.
    "glm4_moe_lite": dict(model_type="glm4_moe_lite", **LATENT, **EXPERTS, n_shared_experts=2, attention_bias=True,
                          mlp_layer_types=["sparse", "dense", "sparse"], tie_word_embeddings=True, rope_interleave=False,
                          rope_scaling={"type": "linear", "factor": 4.0, "mscale_all_dim": 1.0}),
    # Values wider than queries and keys.
    "glm4_moe_lite_values": dict(model_type="glm4_moe_lite", **{**LATENT, "v_head_dim": 15}, **EXPERTS, n_shared_experts=1,
                                 num_hidden_layers=2, first_k_dense_replace=1, norm_topk_prob=False),
    # Groups and the scaling factor by the family's defaults; null instead of false.
    "deepseek_v3": dict(model_type="deepseek_v3", **{**LATENT, "q_lora_rank": None, "num_key_value_heads": None},
                        **{**EXPERTS, "n_routed_experts": 16, "moe_intermediate_size": 3}, num_hidden_layers=2, norm_topk_prob=None,
                        rope_interleave=None, first_k_dense_replace=1, rope_theta=40.0, max_position_embeddings=512,
                        rope_scaling={**YARN, "original_max_position_embeddings": 24, "mscale": None, "mscale_all_dim": 0.8}),
    # Layers as letters, misleading keys, index_topk not above num_experts_per_tok.
    "glm_moe_dsa": dict(model_type="glm_moe_dsa", **LATENT, **EXPERTS, attention_bias=True, head_dim=192, n_group=2, topk_group=1,
                        first_k_dense_replace=1, index_topk=3, index_n_heads=12, index_head_dim=7, index_topk_pattern="FSF",
                        layer_types=["indexed_attention"] * 3, rope_theta=60.0,
                        rope_parameters={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24,
                                         "mscale": 0.5, "mscale_all_dim": 0.8}),
}


def load(folder, generator):
    config = transformers.AutoConfig.from_pretrained(folder)
    config._attn_implementation = config._experts_implementation = "eager"
    name = {"qwen3_moe": "Qwen3Moe", "glm4_moe": "Glm4Moe", "glm4_moe_lite": "Glm4MoeLite", "glm_moe_dsa": "GlmMoeDsa",
            "deepseek_v3": "DeepseekV3"}.get(config.model_type, config.model_type.capitalize())
    model = getattr(transformers, name + "ForCausalLM")(config).float().eval()
    randomise(model, generator)
    return model


def make(family, out, seed=23, batch=3, length=29):
    generator = torch.Generator().manual_seed(seed)
    folder = pathlib.Path(out) / (family + "_odd")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**SIZES, **CASES[family]}, indent=2) + "\n")
    model = load(folder, generator)
    with tempfile.TemporaryDirectory() as saved:
        model.save_pretrained(saved)
        weights = load_file(pathlib.Path(saved) / "model.safetensors")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    ids = torch.randint(3, model.config.vocab_size, (batch, length), generator=generator)
    mask = torch.zeros(batch, length)
    for b, (start, end) in enumerate([(5, 29), (1, 20), (17, 18)]):
        mask[b, start:end] = 1
    m = mask[:, 1:]
    names = {p: n for n, p in model.named_parameters()}
    t = {"input_ids": ids, "response_mask": mask}

    def store(prefix):
        for name, gradient in gradients(names):
            for n, g in on_disk(name, gradient):
                if g.numel() > 0:
                    t[prefix + n] = g.clone()
        model.zero_grad(set_to_none=True)

    _, lp, entropy = per_token(model, ids)
    t |= {"logprobs": lp, "entropy": entropy, "sft.loss": -(lp * m).sum() / m.sum()}
    t["sft.loss"].backward()
    store("sft.grad.")
    advantages = torch.randn(batch, generator=generator)
    old = lp.detach() + 0.2 * torch.randn(lp.shape, generator=generator)
    ref = lp.detach() + 0.2 * torch.randn(lp.shape, generator=generator)
    _, lp, entropy = per_token(model, ids)
    loss = grpo_loss(lp, entropy, old, ref, advantages, m)
    loss.backward()
    t |= {"grpo.advantages": advantages, "grpo.old_logprobs": old, "grpo.ref_logprobs": ref, "grpo.loss": loss}
    store("grpo.grad.")
    save_file({k: v.detach().contiguous() for k, v in t.items()}, folder / "oracle.safetensors")
    print(family, float(t["sft.loss"]), float(loss), sum(f.stat().st_size for f in folder.iterdir()), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", default=",".join(CASES))
    arguments = parser.parse_args()
    for case in arguments.only.split(","):
        make(case, arguments.out)
