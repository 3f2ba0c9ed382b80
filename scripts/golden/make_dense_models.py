#!/usr/bin/env python3
"""Writes tests/golden/models/<case>/: tiny random dense checkpoints in Hugging Face form and what PyTorch
and transformers compute on them in float32: log-probs, entropies, losses and every gradient.

    make_dense_models.py --out tests/golden/models

Needs torch and transformers >= 5. The losses: sft = mean over all response tokens of -log p; grpo = clipped
surrogate + 0.01 low-variance KL - 0.001 entropy, mean over each sample's response, then over samples.
"""
import argparse, json, pathlib
import torch, transformers
from safetensors.torch import save_file

EPS_LOW, EPS_HIGH, KL, ENTROPY = 0.2, 0.28, 0.01, 0.001
BASE = dict(vocab_size=96, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=512, rms_norm_eps=1e-5, tie_word_embeddings=False,
            bos_token_id=1, eos_token_id=2, pad_token_id=0, attn_implementation="eager")
CASES = {
    "llama": ("Llama", dict(rope_parameters={"rope_type": "default", "rope_theta": 5e5})),
    "llama3_scaled_tied_biased": ("Llama", dict(tie_word_embeddings=True, attention_bias=True, mlp_bias=True,
        num_key_value_heads=4, rope_parameters={"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0,
        "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16})),
    "qwen2_untied": ("Qwen2", dict(rms_norm_eps=1e-6)),
    "qwen3_tied_mqa": ("Qwen3", dict(tie_word_embeddings=True, head_dim=10, num_key_value_heads=1, rms_norm_eps=1e-6)),
    "glm4_no_bias": ("Glm4", dict(head_dim=12, attention_bias=False, rope_parameters={
        "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5})),
}


def make(name, out, seed=11):
    cls, extra = CASES[name]
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = getattr(transformers, cls + "ForCausalLM")(getattr(transformers, cls + "Config")(**{**BASE, **extra})).float().eval()
    for key, p in model.named_parameters():
        with torch.no_grad():
            if p.dim() >= 2:
                p.normal_(0, p.shape[-1] ** -0.5, generator=generator)
            else:
                p.normal_(1.0 if "norm" in key else 0.0, 0.2, generator=generator)
    folder = pathlib.Path(out) / name
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder, safe_serialization=True)
    ids = torch.randint(3, BASE["vocab_size"], (3, 29), generator=generator)
    mask = torch.zeros(3, 29)
    for b, (start, end) in enumerate([(5, 29), (1, 20), (17, 18)]):
        mask[b, start:end] = 1
    m = mask[:, 1:]

    def forward():
        logits = torch.stack([model(input_ids=row[None], use_cache=False).logits[0].float() for row in ids])
        logp = torch.log_softmax(logits[:, :-1], -1)
        return logp.gather(-1, ids[:, 1:, None])[..., 0], -(logp.exp() * logp).sum(-1)

    t = {"input_ids": ids, "response_mask": mask}
    lp, entropy = forward()
    t |= {"logprobs": lp.detach().clone(), "entropy": entropy.detach().clone()}
    loss = -(lp * m).sum() / m.sum()
    loss.backward()
    t["sft.loss"] = loss.detach()
    t |= {"sft.grad." + k: p.grad.clone() for k, p in model.named_parameters()}
    model.zero_grad(set_to_none=True)

    advantages = torch.randn(3, generator=generator)
    old = lp.detach() + 0.2 * torch.randn(lp.shape, generator=generator)
    ref = lp.detach() + 0.2 * torch.randn(lp.shape, generator=generator)
    lp, entropy = forward()
    ratio, a = (lp - old).exp(), advantages[:, None]
    surrogate = torch.maximum(-ratio * a, -ratio.clamp(1 - EPS_LOW, 1 + EPS_HIGH) * a)
    kl = (ref - lp).exp() - (ref - lp) - 1
    loss = (((surrogate + KL * kl - ENTROPY * entropy) * m).sum(-1) / m.sum(-1)).mean()
    loss.backward()
    t |= {"grpo.advantages": advantages, "grpo.old_logprobs": old, "grpo.ref_logprobs": ref, "grpo.loss": loss.detach()}
    t |= {"grpo.grad." + k: p.grad.clone() for k, p in model.named_parameters()}
    save_file({k: v.contiguous() for k, v in t.items()}, folder / "oracle.safetensors")
    print(name, float(t["sft.loss"]), float(t["grpo.loss"]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    for case in CASES:
        make(case, parser.parse_args().out)
