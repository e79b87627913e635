"""Tiny random checkpoints of encoders with float64 references: see pretrained_common.py.

    python make_encoders.py [NAME...]        needs torch, transformers, safetensors and numpy
"""

import json
import os
import shutil
import sys

import torch
import transformers

from exact_float64 import exact
from make_decoders import make_exact
from pretrained_common import FOLDER, IGNORED, disturb, gradients, masked, prepare, ragged, write_reference

SMALL = dict(vocab_size=97, max_position_embeddings=26, type_vocab_size=1, hidden_size=16, num_hidden_layers=2,
             num_attention_heads=2, intermediate_size=40, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
             layer_norm_eps=1e-5)
DISTILBERT = dict(vocab_size=97, max_position_embeddings=26, dim=16, n_layers=2, n_heads=2, hidden_dim=40, dropout=0.0,
                  attention_dropout=0.0, seq_classif_dropout=0.0)
MODERNBERT = dict(vocab_size=97, max_position_embeddings=26, hidden_size=16, num_hidden_layers=4, num_attention_heads=2,
                  intermediate_size=40, local_attention=4, pad_token_id=1, cls_token_id=2, sep_token_id=3, bos_token_id=2,
                  eos_token_id=3, rope_parameters={
                      "full_attention": dict(rope_type="default", rope_theta=1000.0),
                      "sliding_attention": dict(rope_type="default", rope_theta=100.0)})
T5 = dict(vocab_size=97, d_model=16, d_kv=6, d_ff=40, num_layers=2, num_heads=4, n_positions=26, dropout_rate=0.0,
          relative_attention_num_buckets=8, relative_attention_max_distance=12)
# Heads of 12, as 3 times 12 has a root that is exact in float32, which the scores are divided by.
DEBERTA = dict(vocab_size=97, max_position_embeddings=26, hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
               intermediate_size=40, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pad_token_id=1,
               relative_attention=True, position_buckets=4, share_att_key=True, norm_rel_ebd="layer_norm",
               pos_att_type=["p2c", "c2p"], position_biased_input=False, pooler_hidden_act="gelu",
               pooler_hidden_size=24, layer_norm_eps=1e-7)
GEMMA = dict(vocab_size=97, hidden_size=16, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, head_dim=6, max_position_embeddings=32, sliding_window=6, query_pre_attn_scalar=5,
             pad_token_id=1, use_bidirectional_attention=True,
             layer_types=["sliding_attention", "sliding_attention", "full_attention"],
             rope_parameters={"sliding_attention": dict(rope_type="default", rope_theta=100.0),
                              "full_attention": dict(rope_type="default", rope_theta=1000.0)})
LENGTHS, COLUMNS = [11, 4, 7], 11
PAD = 1  # transformers counts the positions of tokens that are not padding
# Options of all three heads, then of each.
CASES = {
    # The head's activation is gelu, whatever that of the layers.
    "roberta": dict(kind="Roberta", masked=dict(hidden_act="gelu_new"), classifier=dict(type_vocab_size=2)),
    "xlm_roberta": dict(kind="XLMRoberta"),
    "camembert": dict(kind="Camembert"),
    "distilbert": dict(kind="DistilBert", small=DISTILBERT, options=dict(pad_token_id=1),
                       masked=dict(activation="gelu_new")),
    "electra": dict(kind="Electra", options=dict(pad_token_id=1, embedding_size=8, type_vocab_size=2),
                    masked=dict(hidden_act="gelu_new"), classifier=dict(embedding_size=16)),
    "mpnet": dict(kind="MPNet"),
    "albert": dict(kind="Albert", options=dict(pad_token_id=1, embedding_size=8, type_vocab_size=2,
                                               num_hidden_layers=4, classifier_dropout_prob=0.0),
                   model=dict(num_hidden_groups=2, inner_group_num=2)),
    "embedding_gemma": dict(kind="Gemma3Text", head="Model", small=GEMMA),
    "t5_encoder": dict(kind="T5", head="EncoderModel", small=T5, options=dict(feed_forward_proj="relu")),
    "mt5_encoder": dict(kind="MT5", head="EncoderModel", small=T5),
    "deberta": dict(kind="DebertaV2", small=DEBERTA, masked=dict(type_vocab_size=2, position_biased_input=True),
                    model=dict(position_buckets=-1, max_relative_positions=5, norm_rel_ebd="none")),
    "deberta_conv": dict(kind="DebertaV2", small=DEBERTA, options=dict(conv_kernel_size=3, conv_act="gelu"),
                         classifier=dict(conv_kernel_size=5, conv_act="tanh")),
    "nomic_keys": dict(kind="NomicBert", options=dict(pad_token_id=1, type_vocab_size=2)),
    "gte_keys": dict(kind="Gte", options=dict(pad_token_id=1)),
    "modernbert": dict(kind="ModernBert", small=MODERNBERT,
                       masked=dict(norm_bias=True, attention_bias=True, mlp_bias=True, classifier_bias=True),
                       model=dict(layer_types=["full_attention", "sliding_attention"] * 2),
                       classifier=dict(classifier_pooling="mean")),
}


class Case:
    def __init__(self, name, case):
        self.name, self.case = name, case

    def checkpoint(self, part, head, seed, **options):
        kind = getattr(transformers, self.case["kind"] + head)
        config = {**self.case.get("small", SMALL), **self.case.get("options", {}), **self.case.get(part, {}), **options}
        model = kind(getattr(transformers, self.case["kind"] + "Config")(**config))
        disturb(model, seed)
        folder = os.path.join(FOLDER, f"{self.name}_{part}")
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder)
        if self.name == "embedding_gemma":  # its configuration narrows the window again whenever it is made
            path = os.path.join(folder, "config.json")
            with open(path) as file:
                text = json.load(file)
            text["sliding_window"] = GEMMA["sliding_window"]
            with open(path, "w") as file:
                json.dump(text, file, indent=2, sort_keys=True)
        model = kind.from_pretrained(folder, attn_implementation="eager").double().eval()
        if getattr(model.config, "rope_parameters", None):
            make_exact(model, model.config)
        return model

    def batch(self, model, seed):
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.randint(2, model.config.vocab_size, (len(LENGTHS), COLUMNS), generator=generator)
        real = ragged(LENGTHS, COLUMNS)
        tokens = tokens.masked_fill(~real, PAD)
        inputs = dict(input_ids=tokens, attention_mask=real.long())
        types = torch.zeros_like(tokens)
        if getattr(model.config, "type_vocab_size", 1) > 1 and self.name != "roberta":
            inputs["token_type_ids"] = types = torch.randint(0, 2, tokens.shape, generator=generator)
        arrays = {"tokens": tokens, "types": types, "lengths": torch.tensor(LENGTHS)}
        return inputs, real, arrays, generator

    def masked(self):
        model = self.checkpoint("masked", "ForMaskedLM", 11)
        inputs, real, arrays, generator = self.batch(model, 12)
        places = [(0, 1), (0, 8), (1, 3), (2, 0), (2, 6)]
        labels = torch.full_like(inputs["input_ids"], IGNORED)
        for row, column in places:
            labels[row, column] = torch.randint(2, model.config.vocab_size, (), generator=generator)
        with exact():
            logits = model(**inputs).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
        with exact():
            assert abs(model(**inputs, labels=labels).loss - loss) < 1e-5
        loss.backward()
        # One place more than there are targets: it counts for nothing.
        positions = torch.tensor([row * COLUMNS + column for row, column in places] + [5])
        targets = torch.tensor([int(labels[place]) for place in places] + [-1])
        write_reference(name := self.name + "_masked", {**arrays, "positions": positions, "targets": targets,
                                                "logits": masked(logits, real), "loss": loss, **gradients(model, name)})

    def classifier(self):
        model = self.checkpoint("classifier", "ForSequenceClassification", 21, num_labels=3)
        inputs, _, arrays, _ = self.batch(model, 22)
        labels = torch.tensor([2, 0, 1])
        with exact():
            logits = model(**inputs).logits
        loss = torch.nn.functional.cross_entropy(logits, labels)
        loss.backward()
        write_reference(name := self.name + "_classifier", {**arrays, "labels": labels, "logits": logits, "loss": loss,
                                                    **gradients(model, name)})

    def embeddings(self):
        model = self.checkpoint("model", self.case.get("head", "Model"), 31)
        inputs, real, arrays, _ = self.batch(model, 32)
        inputs.pop("token_type_ids", None)  # Linnet's embeddings are of one type
        del arrays["types"]
        with exact():
            states = model(**inputs).last_hidden_state
        mean = (states * real[..., None]).sum(1) / real.sum(1, keepdim=True)
        write_reference(self.name + "_model", {**arrays, "embeddings": torch.nn.functional.normalize(mean, dim=1),
                                               "loss": torch.zeros(1)})


if __name__ == "__main__":
    prepare()
    for name, case in CASES.items():
        if name in sys.argv[1:] or len(sys.argv) == 1:
            if "head" not in case:
                Case(name, case).masked()
                Case(name, case).classifier()
            Case(name, case).embeddings()
