#!/usr/bin/env python3
"""Model folders of random sizes and settings, of every family of docs/models.md: what Linnet exports as ONNX beside
transformers.

    tools/compare_random_models.py LINNET [--count 4] [--first 0] [--only llama,bert,...]

LINNET is the program. Decoders run in three pieces with keys and values, and as a whole; encoders with padded rows.
Needs torch, transformers and onnxruntime. Ends with 1 when a number differs by more than 5e-5 of the largest.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime
import torch
import transformers as T

MOST = 5e-5


def flip(r, share=0.5):
    return r.random() < share


def rope(r, longest):
    """Rotary positions, which most decoders have."""
    found = {
        "rope_theta": r.choice([100.0, 1e4, 5e5]),
        "rope_type": r.choice(["default", "linear", "dynamic", "yarn", "llama3"]),
    }
    if found["rope_type"] == "default":
        return found
    found["factor"] = r.choice([1.5, 2.0, 4.0])
    if found["rope_type"] == "yarn":
        found |= {"original_max_position_embeddings": longest // 2, "beta_slow": r.choice([1, 2]), "truncate": flip(r)}
        if flip(r):
            found |= {"mscale": 1.0, "mscale_all_dim": 0.7}
    if found["rope_type"] == "llama3":
        found |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": longest // 4}
    return found


def decoder(r, name):
    """A model of a decoder's family, and the most tokens that it takes."""
    heads, size, layers, longest = (
        r.choice([1, 2, 3, 4, 6]),
        r.choice([4, 8, 12, 16]),
        r.choice([1, 2, 3]),
        r.choice([17, 40, 64]),
    )
    width = heads * size
    common = dict(
        vocab_size=r.choice([97, 128, 203]), bos_token_id=1, eos_token_id=2, initializer_range=0.2, pad_token_id=0
    )
    common["tie_word_embeddings"] = flip(r)
    if name == "gpt2":
        common.update(n_positions=longest, n_embd=width, n_layer=layers, n_head=heads, n_inner=r.choice([None, 52]))
        return T.GPT2LMHeadModel(
            T.GPT2Config(activation_function=r.choice(["gelu_new", "gelu", "relu", "silu"]), **common)
        ), longest
    if name == "opt":
        common |= {"init_std": common.pop("initializer_range"), "tie_word_embeddings": True}
        common.update(
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            ffn_dim=52,
            max_position_embeddings=longest,
        )
        common.update(do_layer_norm_before=flip(r), word_embed_proj_dim=r.choice([width, 12]))
        return T.OPTForCausalLM(T.OPTConfig(**common)), longest
    common.update(
        hidden_size=r.choice([24, 32, 40]) if flip(r) else width, num_hidden_layers=layers, num_attention_heads=heads
    )
    common.update(num_key_value_heads=r.choice([h for h in range(1, heads + 1) if heads % h == 0]), head_dim=size)
    common.update(
        intermediate_size=r.choice([32, 52, 76]), max_position_embeddings=longest, rms_norm_eps=r.choice([1e-6, 1e-3])
    )
    common.update(
        rope_parameters=rope(r, longest), hidden_act=r.choice(["silu", "gelu", "gelu_pytorch_tanh", "relu", "tanh"])
    )
    window = {"sliding_window": r.choice([3, 5, None])}
    upper = dict(use_sliding_window=flip(r), sliding_window=4, max_window_layers=r.randint(0, layers))
    experts = r.choice([2, 3, 5])
    routed = dict(num_experts=experts, num_experts_per_tok=r.randint(1, experts), norm_topk_prob=flip(r))
    partial = {
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": r.choice([0.5, 1.0])}
    }
    scores = dict(query_pre_attn_scalar=r.choice([16, 50]), sliding_window=4)
    kinds = {
        kind: {"rope_type": "default", "rope_theta": theta}
        for kind, theta in (("full_attention", 1e6), ("sliding_attention", 1e4))
    }
    own = {
        "llama": ("Llama", dict(attention_bias=flip(r), mlp_bias=flip(r))),
        "mistral": ("Mistral", window),
        "qwen2": ("Qwen2", upper),
        "qwen3": ("Qwen3", upper),
        "olmo2": ("Olmo2", {}),
        "granite": (
            "Granite",
            dict(embedding_multiplier=3.0, logits_scaling=2.5, residual_multiplier=0.3, attention_multiplier=0.2),
        ),
        "smollm3": ("SmolLM3", dict(no_rope_layers=[r.randint(0, 1) for _ in range(layers)], use_sliding_window=False)),
        "phi3": ("Phi3", window | partial),
        "starcoder2": ("Starcoder2", window | dict(use_bias=flip(r), norm_epsilon=1e-3)),
        "stablelm": ("StableLm", partial | dict(use_qkv_bias=flip(r), layer_norm_eps=1e-3, hidden_size=width)),
        "gpt_neox": (
            "GPTNeoX",
            partial | dict(use_parallel_residual=flip(r), attention_bias=flip(r), hidden_size=width),
        ),
        "gemma": ("Gemma", {}),
        "gemma2": ("Gemma2", scores | dict(attn_logit_softcapping=r.choice([5.0, None]), final_logit_softcapping=3.0)),
        "gemma3_text": (
            "Gemma3",
            scores | dict(rope_parameters=kinds, layer_types=[r.choice(list(kinds)) for _ in range(layers)]),
        ),
        "mixtral": (
            "Mixtral",
            window | dict(num_local_experts=experts, num_experts_per_tok=routed["num_experts_per_tok"]),
        ),
        "olmoe": ("Olmoe", routed | dict(hidden_size=width)),
        "qwen3_moe": ("Qwen3Moe", routed | dict(moe_intermediate_size=16, decoder_sparse_step=1, mlp_only_layers=[])),
    }
    if name == "gpt_neox":
        del common["head_dim"], common["num_key_value_heads"]
    if name == "stablelm":
        del common["head_dim"]
    kind, settings = own[name]
    config = getattr(T, kind + ("TextConfig" if kind == "Gemma3" else "Config"))
    return getattr(T, kind + "ForCausalLM")(config(**common | settings)), longest


def encoder(r, name):
    heads, size, longest = r.choice([1, 2, 3, 4, 6]), r.choice([4, 8, 12, 16]), r.choice([20, 40])
    width, layers = heads * size, r.choice([1, 2, 3])
    common = dict(
        vocab_size=r.choice([97, 203]), hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads
    )
    common.update(
        intermediate_size=r.choice([32, 52]), max_position_embeddings=longest, initializer_range=0.2, pad_token_id=1
    )
    common.update(
        hidden_act=r.choice(["gelu", "gelu_new", "relu", "silu", "tanh"]), layer_norm_eps=r.choice([1e-12, 1e-3])
    )
    narrow = {"embedding_size": r.choice([width, 12])}
    relative = dict(
        relative_attention=True, max_relative_positions=r.choice([-1, 7, 16]), position_buckets=r.choice([-1, 4, 8])
    )
    relative.update(share_att_key=True, pos_att_type=["p2c", "c2p"], norm_rel_ebd=r.choice(["layer_norm", "none"]))
    t5 = dict(d_model=width, d_kv=size, d_ff=52, num_layers=layers, num_heads=heads, vocab_size=97)
    modern = {k: v for k, v in common.items() if k not in ("hidden_act", "layer_norm_eps")} | dict(
        global_attn_every_n_layers=2, local_attention=6
    )
    own = {
        "bert": ("Bert", common, 0),
        "roberta": ("Roberta", common, 2),
        "xlm-roberta": ("XLMRoberta", common, 2),
        "camembert": ("Camembert", common, 2),
        "electra": ("Electra", common | narrow, 0),
        "mpnet": ("MPNet", common, 2),
        "albert": ("Albert", common | narrow | dict(num_hidden_groups=1, inner_group_num=r.choice([1, 2])), 0),
        "distilbert": ("DistilBert", dict(vocab_size=97, dim=width, n_layers=layers, n_heads=heads, hidden_dim=52), 0),
        "deberta-v2": (
            "DebertaV2",
            common | relative | dict(conv_kernel_size=r.choice([0, 3]), position_biased_input=flip(r)),
            0,
        ),
        "modernbert": ("ModernBert", modern, 0),
        "nomic_bert": ("NomicBert", common, 0),
        "gte": ("Gte", common, 0),
        "t5": ("T5", t5 | dict(feed_forward_proj=r.choice(["relu", "gated-gelu", "gated-silu"])), 0),
        "mt5": ("MT5", t5, 0),
    }
    kind, settings, unused = own[name]
    model = getattr(T, kind + ("EncoderModel" if name in ("t5", "mt5") else "Model"))
    return model(getattr(T, kind + "Config")(**settings)), longest - unused


DECODERS = (
    "llama mistral qwen2 qwen3 olmo2 granite smollm3 phi3 starcoder2 stablelm gpt_neox gemma gemma2 gemma3_text mixtral "
    "olmoe qwen3_moe gpt2 opt"
).split()
ENCODERS = (
    "bert roberta xlm-roberta camembert electra mpnet albert distilbert deberta-v2 modernbert nomic_bert gte t5 mt5"
).split()


def export(linnet, folder, out, *options):
    run = subprocess.run(
        [linnet, "export", folder, "--onnx", out, "--overwrite", *options], capture_output=True, text=True
    )
    if run.returncode:
        raise RuntimeError(run.stderr.strip())
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(f"{out}/model.onnx", options)


def continued(session, ids, pieces):
    """The logits of tokens that a decoder is given in pieces."""
    past, logits, at = {}, [], 0
    for count in pieces:
        feed = {"input_ids": ids[:, at : at + count]}
        for wanted in session.get_inputs():
            if wanted.name == "attention_mask":
                feed[wanted.name] = np.ones((len(ids), at + count), np.int64)
            elif wanted.name == "position_ids":
                feed[wanted.name] = np.tile(np.arange(at, at + count), (len(ids), 1))
            elif wanted.name != "input_ids":
                feed[wanted.name] = past.get(
                    wanted.name, np.zeros((len(ids), wanted.shape[1], 0, wanted.shape[3]), np.float32)
                )
        found = dict(zip([output.name for output in session.get_outputs()], session.run(None, feed)))
        logits.append(found["logits"])
        past = {key.replace("present", "past_key_values"): value for key, value in found.items()}
        at += count
    return np.concatenate(logits, 1)


def difference(found, wanted):
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def compare(linnet, name, seed, scratch):
    r = random.Random(f"{name}{seed}")
    torch.manual_seed(seed)
    model, longest = (decoder if name in DECODERS else encoder)(r, name)
    for parameter in model.eval().parameters():
        if parameter.ndim == 1:  # norms and biases, which begin alike
            parameter.data.add_(torch.randn_like(parameter) * 0.2)
    folder, out, rows = f"{scratch}/{name}", f"{scratch}/{name}_onnx", 3
    model.save_pretrained(folder)
    ids = torch.randint(6, model.config.vocab_size, (rows, min(longest, 11)))
    length = ids.shape[1]
    with torch.no_grad():
        if name in DECODERS:
            wanted = model(ids).logits.numpy()
            pieces = [length // 2, 1, length - length // 2 - 1]
            cached = continued(export(linnet, folder, out), ids.numpy(), pieces)
            whole = continued(export(linnet, folder, out, "--no-cache"), ids.numpy(), [length])
            return max(difference(cached, wanted), difference(whole, wanted))
        mask = (torch.arange(length) < torch.tensor([[length], [length // 2], [1]])).long()
        ids = torch.where(mask.bool(), ids, torch.tensor(model.config.pad_token_id or 0))
        wanted = model(ids, attention_mask=mask).last_hidden_state.numpy()
    session = export(linnet, folder, out)
    feed = {"input_ids": ids.numpy(), "attention_mask": mask.numpy(), "token_type_ids": np.zeros_like(ids.numpy())}
    names = [wanted.name for wanted in session.get_inputs()]
    found = session.run(["last_hidden_state"], {name: feed[name] for name in names})[0]
    counted = mask.numpy()[..., None]
    return difference(found * counted, wanted * counted)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("linnet")
    parser.add_argument("--count", type=int, default=4)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", type=lambda text: text.split(","), default=DECODERS + ENCODERS)
    a = parser.parse_args()
    T.logging.set_verbosity_error()
    T.logging.disable_progress_bar()
    linnet, bad = os.path.abspath(a.linnet), 0
    for name in a.only:
        for seed in range(a.first, a.first + a.count):
            with tempfile.TemporaryDirectory() as scratch:
                try:
                    found = compare(linnet, name, seed, scratch)
                except Exception as error:  # settings that transformers or Linnet refuses are told
                    print(f"{name} {seed}: {type(error).__name__}: {' '.join(str(error).split())[:150]}", flush=True)
                    continue
            print(f"{name} {seed}: {found:.1e}{'' if found <= MOST else ' DIFFERS'}", flush=True)
            bad += not found <= MOST
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
