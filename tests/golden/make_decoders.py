"""Tiny random checkpoints of decoders with float64 references: see pretrained_common.py.

    python make_decoders.py [NAME]...      needs torch, transformers, safetensors and numpy
"""

import math
import os
import shutil
import sys

import torch
import transformers

from exact_float64 import exact
from pretrained_common import FOLDER, IGNORED, disturb, gradients, masked, prepare, ragged, write_reference

SMALL = dict(vocab_size=97, hidden_size=16, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=32, rms_norm_eps=1e-5)
OTHERS = dict(vocab_size=97, hidden_size=16, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
              max_position_embeddings=32)
SCALING = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
               original_max_position_embeddings=16)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=8, beta_fast=2.0)
CASES = {
    "llama": dict(seed=1, config={}),  # grouped queries, a head of its own
    "llama_tied": dict(seed=2, config=dict(tie_word_embeddings=True, num_key_value_heads=4, head_dim=6)),
    "llama_scaled": dict(seed=3, config=dict(num_key_value_heads=1, num_hidden_layers=1, rope_parameters=SCALING)),
    "llama_biases": dict(seed=4, config=dict(attention_bias=True, mlp_bias=True)),
    "mistral": dict(seed=5, kind="Mistral", config=dict(sliding_window=5, head_dim=4)),
    "qwen2": dict(seed=6, kind="Qwen2", config=dict(tie_word_embeddings=True)),
    "gemma": dict(seed=8, kind="Gemma", config=dict(head_dim=6)),
    "gemma2": dict(seed=9, kind="Gemma2", config=dict(head_dim=6, sliding_window=4, query_pre_attn_scalar=5,
                                                      attn_logit_softcapping=0.5, final_logit_softcapping=2.0)),
    "gemma3": dict(seed=10, kind="Gemma3", text="Text", config=dict(
        head_dim=6, num_hidden_layers=3, sliding_window=4, query_pre_attn_scalar=5,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        rope_parameters={"sliding_attention": dict(rope_type="default", rope_theta=100.0),
                         "full_attention": dict(rope_type="linear", rope_theta=1000.0, factor=8.0)})),
    "phi3": dict(seed=12, kind="Phi3", config=dict(pad_token_id=0, sliding_window=5)),
    "phi3_long": dict(seed=13, kind="Phi3", config=dict(
        head_dim=8, hidden_size=32, pad_token_id=0, original_max_position_embeddings=32, max_position_embeddings=128,
        rope_parameters=dict(rope_type="longrope", rope_theta=100.0, partial_rotary_factor=0.75,
                             short_factor=[1.0, 1.25, 1.5], long_factor=[2.0, 3.0, 4.0]))),
    "phi3_longer": dict(seed=13, kind="Phi3", prompt=11, config=dict(  # all texts are longer than the original length
        head_dim=8, hidden_size=32, pad_token_id=0, original_max_position_embeddings=8, max_position_embeddings=128,
        rope_parameters=dict(rope_type="longrope", rope_theta=100.0, partial_rotary_factor=0.75,
                             short_factor=[1.0, 1.25, 1.5], long_factor=[2.0, 3.0, 4.0]))),
    "olmo2": dict(seed=14, kind="Olmo2", config=dict()),
    "smollm3": dict(seed=15, kind="SmolLM3", config=dict(num_hidden_layers=3, no_rope_layers=[1, 0, 1], pad_token_id=0)),
    "granite": dict(seed=16, kind="Granite", config=dict(
        tie_word_embeddings=True, embedding_multiplier=6.0, attention_multiplier=0.3, residual_multiplier=0.22,
        logits_scaling=4.0, pad_token_id=0)),
    "gpt_neox": dict(seed=17, kind="GPTNeoX", small=OTHERS, config=dict(hidden_size=32, intermediate_size=48)),
    "gpt_neox_serial": dict(seed=18, kind="GPTNeoX", small=OTHERS, config=dict(
        use_parallel_residual=False, attention_bias=False, hidden_act="gelu_new", tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=1000.0, partial_rotary_factor=0.5))),
    "opt": dict(seed=19, kind="OPT", small=OTHERS, config=dict(ffn_dim=40, dropout=0.0)),
    "opt_narrow": dict(seed=20, kind="OPT", small=OTHERS, config=dict(
        ffn_dim=40, dropout=0.0, word_embed_proj_dim=12, do_layer_norm_before=False)),
    "starcoder2": dict(seed=21, kind="Starcoder2", small=OTHERS, config=dict(num_key_value_heads=2, sliding_window=5,
                                                                            norm_epsilon=1e-5)),
    "mixtral": dict(seed=22, kind="Mixtral", config=dict(num_local_experts=4, num_experts_per_tok=2, sliding_window=5)),
    "olmoe": dict(seed=23, kind="Olmoe", config=dict(num_experts=5, num_experts_per_tok=3, num_key_value_heads=4, pad_token_id=None,
                                                        eos_token_id=None)),
    "qwen3_moe": dict(seed=24, kind="Qwen3Moe", config=dict(
        num_experts=6, num_experts_per_tok=2, moe_intermediate_size=12, head_dim=6, norm_topk_prob=True,
        router_aux_loss_coef=0.05)),
    "qwen2_windows": dict(seed=26, kind="Qwen2", config=dict(num_hidden_layers=3, use_sliding_window=True, sliding_window=4,
                                                             max_window_layers=1)),
    "qwen3_yarn": dict(seed=25, kind="Qwen3", config=dict(head_dim=16, rope_parameters=YARN)),
    "stablelm": dict(seed=27, kind="StableLm", small=OTHERS, config=dict(hidden_size=32, num_key_value_heads=2, use_qkv_bias=True)),
    "stablelm_plain": dict(seed=28, kind="StableLm", small=OTHERS, config=dict(  # without biases, half of each head turns
        num_key_value_heads=4, tie_word_embeddings=True, pad_token_id=0,
        rope_parameters=dict(rope_type="default", rope_theta=1000.0, partial_rotary_factor=0.5))),
    "qwen3": dict(seed=7, kind="Qwen3", config=dict(head_dim=6, tie_word_embeddings=True)),
}


def frequencies(rope, size, longer=False):
    """In float64, by the formulas; transformers has them in float32."""
    size = int(size * rope.get("partial_rotary_factor", 1))
    plain = rope["rope_theta"] ** -(torch.arange(0, size, 2, dtype=torch.float64) / size)
    if rope["rope_type"] == "default":
        return plain
    if rope["rope_type"] == "linear":
        return plain / rope["factor"]
    if rope["rope_type"] == "yarn":
        def pair(turns):
            return size * math.log(rope["original_max_position_embeddings"] / (turns * 2 * math.pi)) / (2 * math.log(rope["rope_theta"]))
        first, last = max(math.floor(pair(rope["beta_fast"])), 0), min(math.ceil(pair(1)), size - 1)
        share = 1 - ((torch.arange(size // 2).double() - first) / (last - first or 0.001)).clamp(0, 1)
        return (1 - share) * plain / rope["factor"] + share * plain
    if rope["rope_type"] == "longrope":
        return plain / torch.tensor(rope["long_factor" if longer else "short_factor"]).double()
    turns = rope["original_max_position_embeddings"] * plain / (2 * math.pi)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    share = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - share) * plain / rope["factor"] + share * plain


def make_exact(model, config):
    """Buffers that transformers has rounded to float32."""
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    for module in model.modules():
        for name, buffer in list(module.named_buffers(recurse=False)):
            if name == "embed_scale":
                module.embed_scale = torch.tensor(config.hidden_size, dtype=torch.float64).sqrt()
            if name.endswith("inv_freq"):
                layers = name.removesuffix("inv_freq").removesuffix("original_").removesuffix("_")
                rope = config.rope_parameters[layers] if layers else config.rope_parameters
                torch.testing.assert_close(buffer.double(), frequencies(rope, size), rtol=1e-6, atol=0)
                setattr(module, name, frequencies(rope, size))
                if rope["rope_type"] == "longrope":
                    module.long_inv_freq = frequencies(rope, size, longer=True)


class Routers:
    """What each router reads, for the loss that keeps experts equally busy: of all positions, padding too."""

    def __init__(self, model):
        self.config, self.logits, self.hooked = model.config, [], False
        for name, module in model.named_modules():
            if name.endswith(".gate") and hasattr(module, "weight"):
                module.register_forward_pre_hook(self.hear)
                self.hooked = True

    def hear(self, module, args):
        states = args[0].reshape(-1, args[0].shape[-1])
        self.logits.append(states @ module.weight.T)

    def loss(self):
        count = getattr(self.config, "num_experts", None) or self.config.num_local_experts
        chosen = self.config.num_experts_per_tok
        probabilities = torch.cat([logits.softmax(1) for logits in self.logits])
        busy = torch.nn.functional.one_hot(probabilities.topk(chosen, 1)[1], count).double().sum(1).mean(0)
        loss = count * (busy * probabilities.mean(0)).sum()
        theirs = sys.modules[f"transformers.models.{self.config.model_type}.modeling_{self.config.model_type}"]
        torch.testing.assert_close(loss, theirs.load_balancing_loss_func(tuple(self.logits), count, chosen).double(),
                                   rtol=1e-5, atol=0)
        return self.config.router_aux_loss_coef * loss


def make(name, case):
    kind = case.get("kind", "Llama")
    config = getattr(transformers, kind + case.get("text", "") + "Config")(**{**case.get("small", SMALL), **case["config"]}, attn_implementation="eager")
    architecture = getattr(transformers, kind + "ForCausalLM")
    model = architecture(config)
    disturb(model, case["seed"])
    folder = os.path.join(FOLDER, name)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)

    model = architecture.from_pretrained(folder, attn_implementation="eager", experts_implementation="eager").double().eval()
    make_exact(model, config)
    generator = torch.Generator().manual_seed(100 + case["seed"])
    lengths, columns = [11, 4, 7], 11
    real = ragged(lengths, columns)
    tokens = torch.randint(0, config.vocab_size, (len(lengths), columns), generator=generator)
    if config.pad_token_id is not None:
        tokens[1, 2] = config.pad_token_id  # whose embedding is not trained by lookups
    targets = torch.full_like(tokens, IGNORED)
    targets[:, :-1] = tokens[:, 1:].masked_fill(~real[:, 1:], IGNORED)
    routers = Routers(model)
    with exact():  # causal: the mask changes states of padding alone, which only the routers' loss sees; Linnet has none
        logits = model(input_ids=tokens, attention_mask=(real if not routers.hooked else torch.ones_like(real)).long()).logits
    balance = routers.loss() if routers.logits else 0
    with exact():
        theirs = model(input_ids=tokens, attention_mask=real.long(), labels=tokens.masked_fill(~real, IGNORED)).loss
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
    assert abs(theirs - loss) < 1e-5
    (loss + balance).backward()
    model.generation_config = transformers.GenerationConfig()  # no end
    prompt = case.get("prompt", 5)
    generated = model.generate(tokens[:1, :prompt], attention_mask=torch.ones(1, prompt), max_new_tokens=20, do_sample=False, pad_token_id=0)
    assert generated.shape[1] == prompt + 20
    write_reference(name, {"generated": generated[:, prompt:], "tokens": tokens, "targets": targets, "logits": masked(logits, real), "loss": loss,
                           **gradients(model, name)})


if __name__ == "__main__":
    prepare()
    for name, case in CASES.items():
        if name in sys.argv[1:] or len(sys.argv) == 1:
            make(name, case)
