#!/usr/bin/env python3
"""Writes tests/text/tokenizers/*.json, small tokenizers with the structure of published ones, and
tests/text/tokenizer_test.jsonl, the output of the `tokenizers` library for difficult texts.

Usage: make_tokenizer_golden.py TESTS_TEXT_DIR     (needs: pip install tokenizers)

Each line: tokenizer, text, ids, plain (ids with special tokens taken as text), decoded, skipped
(decoded without special tokens).
"""
import json
import os
import random
import sys

import tokenizers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

CORPUS = [
    "The quick brown fox jumps over the lazy dog. Let x = 12345 and y = 678; then x + y = 13023.",
    "Solve $\\frac{4}{5}$ and \\boxed{$Answer}. We'll see: it's what they've done, isn't it?",
    "def encode(text):\n    return [table[c] for c in text]\n\n\tprint('hello world')  # comment\n",
    "\u6570\u5b66\u95ee\u9898\uff1a\u6c42\u6700\u5927\u503c\u3002\u6570\u5b66\u95ee\u9898\u3002 \u3053\u3093\u306b\u3061\u306f\u4e16\u754c \uc548\ub155\ud558\uc138\uc694 \uc138\uacc4",
    "Stra\u00dfe \u00c4pfel na\u00efve caf\u00e9 \u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440 \u03b1\u03b2\u03b3 \u03b1\u03b2\u03b3",
] * 4

TEXTS = [
    "", " ", "  ", "   \n", "\n\n\n", "\t\n \t", "\r\n\r\n x\r\n", "Hello world", " Hello", "Hello ",
    "don't WE'LL they'VE it'S 'tis", "123456789 1 22 333 4444", "3.14159e-10", "a1b2c3",
    "!@#$%^&*()_+{}|:\"<>?-=[]\\;',./~`", "...???!!!\n\n", "def f(x):\n    return x+1\n",
    "\u6570\u5b66\u95ee\u9898\uff1a\u6c42\u6700\u5927\u503c\u3002", "\u3053\u3093\u306b\u3061\u306f world \uc548\ub155",
    "e\u0301 \u00e9 a\u0316\u0301 a\u0301\u0316", "\u1e9b\u0323 \ufb01 \u212a \u2126", "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1fa\U0001f1f8 \U0001f44d\U0001f3fd", "\u0000a\u0000", "\ufeffbom", "\u180ex \u180e",
    "\u2028\u2029\u0085x\u00a0y\u3000z", "\ufffd\uffff\U0010ffff", "\u2581a \u2581 b", "\u0120x \u010a",
    "\u00b2\u00b3\u00bd \u0661\u0662\u0663 \u2167 \u3007", "_snake_case_ \u203f", "\u00c4pfel nai\u0308ve", "'\u017f \u0130I\u0131 \u03a3\u03c2",
    "<s>[INST] hi [/INST]</s>", "<|begin_of_text|>x<|eot_id|>", "<|begin_of_text|><|begin_of_text|>",
    "<|begin_of_tex", "<<|eot_id|>>", "a <mask> b", "a <mask>b", "a\n <mask> \n b", "<mask>", "wordx word word.x xword word",
    "  <trim>  ", "x<trim> \t<trim>y", "ABC think <think> </think>", "<unk><0x0A>\n", "<\uff5cUser\uff5c>hi<\uff5cend\u2581of\u2581sentence\uff5c>",
    "\U00031350\U0002ebf0\u31350 \u1e030",
]

SPLIT_LLAMA = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
               r"|\s*[\r\n]+|\s+(?!\S)|\s+")
SPLIT_DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
                  r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPLIT_TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
                r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}"
                r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def byte_level(**kw):
    return pre_tokenizers.ByteLevel(**{"add_prefix_space": False, "use_regex": False, **kw})


def sequence(*steps):
    return pre_tokenizers.Sequence(list(steps))


def train(pre, normalizer=None, decoder=None, alphabet=True, size=380, special=()):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoder or decoders.ByteLevel()
    initial = pre_tokenizers.ByteLevel.alphabet() if alphabet else []
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=sorted(initial), show_progress=False,
        special_tokens=list(special)))
    return json.loads(tokenizer.to_str())


def add_tokens(spec, tokens):
    next_id = 1 + max([*spec["model"]["vocab"].values(), *[t["id"] for t in spec["added_tokens"]]])
    for content, flags in tokens:
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                 "special": False, **flags}
        spec["added_tokens"].append({"id": next_id, "content": content, **flags})
        next_id += 1
    return spec


SPECIAL = {"special": True}
EXTRA = [("<mask>", {"special": True, "lstrip": True}), ("<trim>", {"lstrip": True, "rstrip": True}),
         ("word", {"single_word": True}), ("<think>", {}), ("</think>", {}), ("ABC", {"normalized": True})]


def sentencepiece_form(pre, normalizer, decoder, scheme_pre):
    """A vocabulary as the conversion from sentencepiece makes it: unknown, control and byte tokens
    first, pieces with U+2581 for the space, merges, byte_fallback."""
    spec = train(scheme_pre, normalizers.Replace(" ", "\u2581"), decoders.Metaspace(), False, 300)
    head = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    pieces = [p for p, _ in sorted(spec["model"]["vocab"].items(), key=lambda kv: kv[1]) if p not in head]
    keep = [p for p in pieces if ord(p[0]) < 0x3000 or len(p) > 1]  # lone CJK falls back to bytes
    vocab = {p: i for i, p in enumerate(head + keep)}
    merges = [m for m in spec["model"]["merges"] if all(x in vocab for x in (m[0], m[1], m[0] + m[1]))]
    spec["model"].update(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    spec["added_tokens"] = [{"id": i, "content": head[i], "single_word": False, "lstrip": False,
                             "rstrip": False, "normalized": False, "special": True} for i in range(3)]
    spec.update(normalizer=normalizer, pre_tokenizer=pre, decoder=decoder)
    return add_tokens(spec, [("[INST]", SPECIAL), ("[/INST]", SPECIAL)])


def make_tokenizers():
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    chain = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
        {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    space_pre = split("\u2581", "merged_with_next")
    llama = add_tokens(train(sequence(split(SPLIT_LLAMA), byte_level())),
                       [("<|begin_of_text|>", SPECIAL), ("<|eot_id|>", SPECIAL), *EXTRA])
    llama["model"]["ignore_merges"] = True
    # Without its last merge, only ignore_merges yields this word as one token.
    llama["model"]["merges"] = [m for m in llama["model"]["merges"] if "".join(m) != "\u0120the"]
    llama["post_processor"] = {"type": "Sequence", "processors": [
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
        {"type": "TemplateProcessing",
         "single": [{"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
         "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
         "special_tokens": {"<|begin_of_text|>": {"id": "<|begin_of_text|>", "ids": [380],
                                                  "tokens": ["<|begin_of_text|>"]}}}]}
    deepseek = add_tokens(
        train(sequence(split(r"\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
                       split(SPLIT_DEEPSEEK), byte_level()), normalizers.Sequence([])),
        [("<\uff5cend\u2581of\u2581sentence\uff5c>", SPECIAL), ("<\uff5cUser\uff5c>", {})])
    qwen = add_tokens(train(sequence(split(SPLIT_LLAMA.replace("{1,3}", "")), byte_level()), normalizers.NFC()),
                      [("<|im_end|>", SPECIAL), ("<think>", {}), ("\u00c4pfel na\u00efve", {"normalized": True})])
    falcon = train(sequence(pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
                            pre_tokenizers.Digits(), split("[0-9][0-9][0-9]")))
    gpt2 = train(pre_tokenizers.ByteLevel(add_prefix_space=True))
    gpt2["model"]["merges"] = [" ".join(m) for m in gpt2["model"]["merges"]]
    starcoder = train(sequence(pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)),
                      normalizers.NFKC())
    tekken = add_tokens(train(sequence(split(SPLIT_TEKKEN), byte_level())),
                        [("<s>", SPECIAL), ("[INST]", SPECIAL), ("[/INST]", SPECIAL)])
    words = train(sequence(pre_tokenizers.Whitespace(), split("o", "merged_with_previous"),
                           split("x", "removed"), split(" ?e", "contiguous", True)),
                  normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(),
                                        normalizers.Strip(), normalizers.Replace(Regex("[0-9]+"), "9")]),
                  decoders.Fuse(), False, 200, ["<unk>"])
    words["model"].update(unk_token="<unk>", fuse_unk=False)
    words["added_tokens"][0]["normalized"] = True
    plain = train(pre_tokenizers.WhitespaceSplit(), None, decoders.Fuse(), False, 150)
    plain["decoder"] = None
    affix = Tokenizer(models.BPE(vocab={"a": 0, "##b": 1, "##c</w>": 2, "a</w>": 3, "a##b": 4, "ab": 5, "abc</w>": 6},
                                 merges=[("a", "##b"), ("ab", "##c</w>")], continuing_subword_prefix="##",
                                 end_of_word_suffix="</w>"))
    affix.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return {
        "llama3": llama, "deepseek": deepseek, "qwen": qwen, "falcon": falcon, "gpt2": gpt2,
        "starcoder": starcoder, "tekken": tekken, "words": words, "plain": plain,
        "affix": json.loads(affix.to_str()),
        "mistral": sentencepiece_form(None, {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u2581"}, replace]}, chain, space_pre),
        "metaspace_first": sentencepiece_form(
            {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}, None, chain, space_pre),
        "metaspace_always": sentencepiece_form(
            {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}, None,
            {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}, space_pre),
    }


def random_texts(n):
    rng = random.Random(7)
    pool = "".join(CORPUS[:5]) + "  \n\t\u00a0\u0301\u0e01\u200d\U0001f600\u2581\u0120'"
    return ["".join(rng.choice(pool) for _ in range(rng.randint(1, 24))) for _ in range(n)]


def main():
    folder = sys.argv[1]
    os.makedirs(os.path.join(folder, "tokenizers"), exist_ok=True)
    with open(os.path.join(folder, "tokenizer_test.jsonl"), "w", encoding="utf-8") as out:
        for name, spec in make_tokenizers().items():
            text = json.dumps(spec, ensure_ascii=False, separators=(",", ":"))
            with open(os.path.join(folder, "tokenizers", name + ".json"), "w", encoding="utf-8") as file:
                file.write(text + "\n")
            tokenizer = Tokenizer.from_str(text)
            for text in TEXTS + random_texts(12) + CORPUS[:5]:
                tokenizer.encode_special_tokens = False
                ids = tokenizer.encode(text, add_special_tokens=False).ids
                tokenizer.encode_special_tokens = True
                plain = tokenizer.encode(text, add_special_tokens=False).ids
                case = {"tokenizer": name, "text": text, "ids": ids}
                if plain != ids:
                    case["plain"] = plain
                decoded = tokenizer.decode(ids, skip_special_tokens=False)
                case["decoded"] = decoded
                skipped = tokenizer.decode(ids, skip_special_tokens=True)
                if skipped != decoded:
                    case["skipped"] = skipped
                out.write(json.dumps(case, separators=(",", ":")) + "\n")
    print("tokenizers", tokenizers.__version__)


if __name__ == "__main__":
    main()
