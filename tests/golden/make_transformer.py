"""Writes the golden files that pin Linnet's encoder-decoder Transformer to PyTorch's nn.Transformer, in float64.

    python make_transformer.py [output folder]        needs torch >= 2.0, numpy and safetensors; see README.md

Model:  x = embedding[ids] * sqrt(d) + PE,   PE[p, 2i] = sin(p / 10000^(2i/d)),  PE[p, 2i+1] = cos(the same)
        logits = Linear(Transformer(source x, target x)), final norms after both stacks ("Attention Is All You Need",
        sections 3.1-3.5, with nn.Transformer's norms)
Loss:   sum over real target tokens of -[(1-s) log p(y) + s/V sum_c log p(c)]  /  number of real target tokens
"""

import json
import os
import sys
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import load_file, save_file

PAD, BEGIN, END, FIRST_WORD = 0, 2, 3, 4
STEPS, BATCH, SOURCE, TARGET = 20, 4, 7, 6
LEARNING_RATE, BETAS, EPSILON = 1e-3, (0.9, 0.98), 1e-9

CASES = {
    "post_ln_relu": dict(seed=101, d_model=16, num_heads=2, d_ff=32, num_encoder_layers=2, num_decoder_layers=2,
                         source_vocab=19, target_vocab=17, activation="relu", norm_first=False, label_smoothing=0.1,
                         tied=False),
    "pre_ln_gelu": dict(seed=202, d_model=24, num_heads=3, d_ff=48, num_encoder_layers=1, num_decoder_layers=2,
                        source_vocab=23, target_vocab=23, activation="gelu", norm_first=True, label_smoothing=0.0,
                        tied=True),
}


def positions(length, d_model):
    """PE of the docstring, [length, d_model]."""
    angle = torch.arange(length)[:, None] / 10000.0 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).reshape(length, d_model)


def padding_mask(lengths, columns):
    """True where PyTorch must ignore the position, [batch, columns]."""
    return torch.arange(columns)[None, :] >= lengths[:, None]


class Model(torch.nn.Module):
    def __init__(self, case):
        super().__init__()
        self.case, d = case, case["d_model"]
        self.source_embedding = torch.nn.Embedding(case["source_vocab"], d)
        self.target_embedding = torch.nn.Embedding(case["target_vocab"], d)
        self.transformer = torch.nn.Transformer(
            d, case["num_heads"], case["num_encoder_layers"], case["num_decoder_layers"], case["d_ff"], dropout=0.0,
            activation=case["activation"], batch_first=True, norm_first=case["norm_first"])
        self.head = torch.nn.Linear(d, case["target_vocab"])
        if case["tied"]:
            self.target_embedding.weight = self.head.weight = self.source_embedding.weight
        self.disturb()

    @torch.no_grad()
    def disturb(self):
        """Moves every bias off 0 and every norm off 1, so that a swapped or forgotten one shows."""
        for name, parameter in self.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
            elif "embedding" in name:
                parameter.normal_(0.0, self.case["d_model"] ** -0.5)

    def embed(self, embedding, ids):
        d = self.case["d_model"]
        return embedding(ids) * d**0.5 + positions(ids.shape[1], d)

    def forward(self, batch):
        """-> (encoder output [batch, S, d], logits [batch, T, V])"""
        source_padding = padding_mask(batch["source_lengths"], batch["source"].shape[1])
        target_padding = padding_mask(batch["target_lengths"], batch["target_in"].shape[1])
        columns = batch["target_in"].shape[1]
        causal = torch.ones(columns, columns, dtype=torch.bool).triu(1)
        memory = self.transformer.encoder(self.embed(self.source_embedding, batch["source"]),
                                          src_key_padding_mask=source_padding)
        decoded = self.transformer.decoder(self.embed(self.target_embedding, batch["target_in"]), memory,
                                           tgt_mask=causal, tgt_key_padding_mask=target_padding,
                                           memory_key_padding_mask=source_padding)
        return memory, self.head(decoded)

    def loss(self, batch):
        _, logits = self(batch)
        total = F.cross_entropy(logits.flatten(0, 1), batch["target_out"].flatten(), ignore_index=PAD,
                                reduction="sum", label_smoothing=self.case["label_smoothing"])
        return total / batch["target_lengths"].sum()


def random_batch(case, generator):
    """Token ids with lengths 1..SOURCE and 1..TARGET; one row of each is 2 long, so every batch holds padding."""
    def rows(vocab, columns):
        lengths = torch.randint(1, columns + 1, (BATCH,), generator=generator)
        lengths[torch.randint(0, BATCH, (1,), generator=generator)] = 2
        ids = torch.randint(FIRST_WORD, vocab, (BATCH, columns), generator=generator)
        return ids, lengths

    source, source_lengths = rows(case["source_vocab"], SOURCE)
    words, target_lengths = rows(case["target_vocab"], TARGET)
    target_in = torch.cat([torch.full((BATCH, 1), BEGIN), words[:, :-1]], dim=1)
    last = torch.arange(TARGET)[None, :] == target_lengths[:, None] - 1
    target_out = words.masked_fill(last, END)
    target_padding = padding_mask(target_lengths, TARGET)
    return {
        "source": source.masked_fill(padding_mask(source_lengths, SOURCE), PAD),
        "source_lengths": source_lengths,
        "target_in": target_in.masked_fill(target_padding, PAD),
        "target_out": target_out.masked_fill(target_padding, PAD),
        "target_lengths": target_lengths,
    }


def linnet_names(name, tensor, case):
    """PyTorch's parameter (or its gradient) -> [(Linnet's name, tensor)]."""
    if "embedding" in name and case["tied"]:
        return [("shared_embedding.weight", tensor)]
    name = name.removeprefix("transformer.")
    if ".multihead_attn." not in name:
        return [(name.replace("in_proj_", "in_proj."), tensor)]
    name = name.replace(".multihead_attn.", ".cross_attn.")
    if "in_proj_" not in name:
        return [(name, tensor)]
    d = case["d_model"]  # rows q | k | v: the query reads the target, key and value read the encoder
    return [(name.replace("in_proj_", "q_proj."), tensor[:d]), (name.replace("in_proj_", "kv_proj."), tensor[d:])]


def snapshot(model, prefix, pick):
    return {prefix + name: tensor.detach().clone().numpy()
            for torch_name, parameter in model.named_parameters()
            for name, tensor in linnet_names(torch_name, pick(parameter), model.case)}


def check_padding(model, batch):
    """More columns, filled with arbitrary ids, must not change the loss: only the lengths say what is real."""
    wider = dict(batch)
    for key, extra in (("source", 3), ("target_in", 2), ("target_out", 2)):
        wider[key] = F.pad(batch[key], (0, extra), value=PAD)
        lengths = batch["source_lengths" if key == "source" else "target_lengths"]
        if key != "target_out":
            wider[key] = wider[key].masked_fill(padding_mask(lengths, wider[key].shape[1]), FIRST_WORD)
    difference = abs(model.loss(batch).item() - model.loss(wider).item())
    assert difference < 1e-13, f"padding changed the loss by {difference}"


def make(case):
    """-> {name: array} of one golden file."""
    torch.manual_seed(case["seed"])
    model = Model(case)
    model.train()
    generator = torch.Generator().manual_seed(case["seed"] + 1)
    batches = [random_batch(case, generator) for _ in range(STEPS)]
    check_padding(model, batches[0])

    out = snapshot(model, "init.", lambda p: p)
    with torch.no_grad():
        memory, logits = model(batches[0])
    for name, values, lengths in (("first.encoder_output", memory, "source_lengths"),
                                  ("first.logits", logits, "target_lengths")):
        padding = padding_mask(batches[0][lengths], values.shape[1])
        out[name] = values.masked_fill(padding[:, :, None], 0.0).numpy()

    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, betas=BETAS, eps=EPSILON, foreach=False)
    losses = []
    for step, batch in enumerate(batches):
        optimizer.zero_grad()
        loss = model.loss(batch)
        loss.backward()
        if step == 0:
            out.update(snapshot(model, "grad.", lambda p: p.grad))
        optimizer.step()
        losses.append(loss.item())
    out.update(snapshot(model, "final.", lambda p: p))
    out["losses"] = np.array(losses)
    for key in batches[0]:
        out[key] = torch.stack([batch[key] for batch in batches]).numpy().astype(np.int32)
    return {name: np.ascontiguousarray(array) for name, array in out.items()}


def metadata(case):
    keys = ("d_model", "num_heads", "d_ff", "num_encoder_layers", "num_decoder_layers", "activation", "norm_first",
            "label_smoothing", "tied")
    values = {key: case[key] for key in keys}
    values.update(lr=LEARNING_RATE, beta1=BETAS[0], beta2=BETAS[1], epsilon=EPSILON, torch_version=torch.__version__)
    return {key: str(value).lower() for key, value in values.items()}


def save(arrays, path, entries):
    """save_file writes the metadata in random order; put it in order, so that equal contents are equal files."""
    save_file(arrays, path, metadata=entries)
    with open(path, "r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, separators=(",", ":")).encode().ljust(length)
        assert len(text) == length
        file.seek(8)
        file.write(text)


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    warnings.filterwarnings("ignore", message="enable_nested_tensor")  # an inference-only path, not taken here
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name, case in CASES.items():
        arrays, again = make(case), make(case)
        assert all(np.array_equal(arrays[key], again[key]) for key in arrays), "two runs differ"
        path = os.path.join(folder, f"transformer_{name}.safetensors")
        save(arrays, path, metadata(case))
        assert all(np.array_equal(arrays[key], value) for key, value in load_file(path).items())
        losses = arrays["losses"]
        print(f"{path}: {len(arrays)} tensors, {os.path.getsize(path)} bytes, loss {losses[0]:.6f} -> {losses[-1]:.6f}")


if __name__ == "__main__":
    main()
