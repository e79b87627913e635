#!/usr/bin/env python3
"""Random models and runs of linnet against transformers: the folders that `linnet convert` and `linnet export` write
are loaded there, and give the losses, logits and embeddings that linnet says.

    tools/check_export.py build/release/bin/linnet TEXT     needs torch and transformers; TEXT: e.g. WikiText's test
    tools/check_export.py --head build/release/examples/library/bert TEXT      the last of the checks alone

Decoders: loss, perplexity and tokens of `linnet eval --json` over the same windows; BERT: embeddings of `linnet embed`,
accuracy and loss of a classifier; BERT's heads, T5 and Marian: the logits of random ids, bit for bit those of the
folder that was converted. A program's own model, examples/library/bert.cpp, which is BERT with a head and frozen layers:
fine-tuned and saved, its logits for every line.
"""

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOKENIZERS = os.path.join(ROOT, "tests/golden/tokenizers")
LAYERS = dict(hidden_size=48, intermediate_size=112, num_hidden_layers=3, num_attention_heads=6)
DECODER = dict(**LAYERS, num_key_value_heads=2, max_position_embeddings=128, vocab_size=800)
ENCODER = dict(**LAYERS, max_position_embeddings=128, vocab_size=600)
T5 = dict(vocab_size=300, d_model=32, d_kv=12, d_ff=64, num_layers=2, num_heads=4)
MARIAN = dict(vocab_size=300, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, pad_token_id=0,
              decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, decoder_start_token_id=0)
# Class, its configuration, a tokenizer.
DECODERS = {
    "gpt2": ("GPT2LMHeadModel", dict(vocab_size=600, n_positions=128, n_embd=48, n_layer=3, n_head=6), "gpt2.json"),
    "gpt2_untied": ("GPT2LMHeadModel", dict(vocab_size=640, n_positions=96, n_embd=36, n_layer=2, n_head=4, n_inner=80,
                                            tie_word_embeddings=False, activation_function="gelu"), "gpt2.json"),
    "llama": ("LlamaForCausalLM", dict(**DECODER, head_dim=10), "llama.json"),
    "llama_biases": ("LlamaForCausalLM", dict(**DECODER, attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
                     "llama.json"),
    "mistral": ("MistralForCausalLM", dict(**DECODER, sliding_window=17), "llama.json"),
    "qwen2": ("Qwen2ForCausalLM", DECODER, "gpt2.json"),
}
OTHERS = {
    "bert_masked": ("BertForMaskedLM", ENCODER),
    "bert_classifier": ("BertForSequenceClassification", dict(**ENCODER, num_labels=3)),
    "t5": ("T5ForConditionalGeneration", T5),
    "t5_gated": ("T5ForConditionalGeneration", dict(**T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False)),
    "marian": ("MarianMTModel", MARIAN),
}


class Check:
    def __init__(self, linnet, text, folder):
        self.linnet, self.text, self.folder = linnet, text, folder

    def __truediv__(self, name):
        return os.path.join(self.folder, name)

    def run(self, *arguments, **more):
        done = subprocess.run([self.linnet, *arguments], capture_output=True, text=True, **more)
        assert done.returncode == 0, (arguments, done.stderr)
        return done.stdout

    def make(self, name, architecture, settings, tokenizer=None):
        kind = getattr(transformers, architecture)
        torch.manual_seed(len(name))
        model = kind(kind.config_class(**settings)).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn(parameter.shape)
        model.save_pretrained(self / name)
        if tokenizer:
            shutil.copy(os.path.join(TOKENIZERS, tokenizer), os.path.join(self / name, "tokenizer.json"))
        return self / name


def load(folder):
    with open(os.path.join(folder, "config.json")) as file:
        architecture = json.load(file)["architectures"][0]
    model, report = getattr(transformers, architecture).from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    return model.eval()


@torch.no_grad()
def loss_of(folder, text, length):
    """Mean over all tokens after the first, each predicted within windows that do not overlap."""
    model = load(folder)
    ids = transformers.PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tokenizer.json"))(
        text, add_special_tokens=False)["input_ids"]
    total = 0
    for first in range(0, len(ids) - 1, length):
        window = torch.tensor(ids[first:first + length + 1])
        logits = model(input_ids=window[None, :-1]).logits[0]
        total += torch.nn.functional.cross_entropy(logits.double(), window[1:], reduction="sum").item()
    return total / (len(ids) - 1), len(ids) - 1


def compare_loss(check, name, folder, length, run=None):
    theirs, tokens = loss_of(folder, open(check.text).read(), length)
    for scored in filter(None, [folder, run]):
        ours = json.loads(check.run("eval", scored, "--data", check.text, "--json"))
        assert ours["tokens"] == tokens, (ours, tokens)
        assert abs(ours["loss"] - theirs) < 1e-5 * theirs, (ours["loss"], theirs)
        assert math.isclose(ours["perplexity"], math.exp(ours["loss"]), rel_tol=1e-9)
        words = len(open(check.text).read().split())
        assert ours["words"] == words
        assert math.isclose(ours["word_perplexity"], math.exp(ours["loss"] * tokens / words), rel_tol=1e-6)
    print(f"{name}: loss {theirs:.6f} over {tokens} tokens, linnet {ours['loss'] - theirs:+.1e}")


def check_decoders(check):
    for name, (architecture, settings, tokenizer) in DECODERS.items():
        folder = check.make(name, architecture, settings, tokenizer)
        length = settings.get("n_positions") or settings["max_position_embeddings"]
        check.run("convert", folder, check / "converted")
        compare_loss(check, name, check / "converted", length)
        check.run("export", folder, "--out", check / "exported")
        compare_loss(check, name + ", exported", check / "exported", length)
        for out in "converted", "exported":
            shutil.rmtree(check / out)


def check_runs(check):
    """What was made here: exported, it is the same model."""
    for architecture in "gpt", "llama":
        run, settings = check / ("run_" + architecture), dict(
            architecture=architecture, d_model=32, d_ff=88, num_heads=2, num_layers=2, max_seq_len=64, batch_size=4,
            max_steps=3, eval_every=3, sample_length=0, precision="fp32", tokenizer_dir=check / "gpt2",
            **{"data.dir": os.path.dirname(check.text), "data.text": os.path.basename(check.text)})
        check.run("train", "shakespeare", "--run", run,
                  *(part for key, value in settings.items() for part in ("--set", f"{key}={value}")))
        check.run("export", run, "--out", run + "_out")
        compare_loss(check, f"a run of {architecture}", run + "_out", 64, run)


@torch.no_grad()
def logits_of(model, generator):
    ids = lambda: torch.randint(3, model.config.vocab_size, (2, 9), generator=generator)
    inputs = dict(input_ids=ids())
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = ids()
    return model(**inputs).logits


@torch.no_grad()
def check_generation(check):
    """`linnet generate` does what generation_config.json says, and says what it does not do."""
    settings = {
        "greedy": dict(do_sample=False, max_new_tokens=30, repetition_penalty=1.3),
        "ends": dict(do_sample=False, max_length=40, eos_token_id=[7, 120, 300, 431]),
        "beams": dict(num_beams=4, max_new_tokens=12, length_penalty=0.7, eos_token_id=list(range(20, 60))),
        "refused": dict(do_sample=False, max_new_tokens=5, no_repeat_ngram_size=2),
    }
    for name in "gpt2", "llama", "mistral", "qwen2":
        folder = check / name
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tokenizer.json"))
        for case, values in settings.items():
            transformers.GenerationConfig(**values).save_pretrained(folder)
            prompt = "The quick brown fox" + ", and then a second one" * (case != "ends")
            done = subprocess.run([check.linnet, "generate", folder, "--prompt", prompt], capture_output=True)
            assert done.returncode == 0, done.stderr
            if case == "refused":
                assert '"no_repeat_ngram_size" is not supported' in done.stderr.decode(), done.stderr
                continue
            ids = tokenizer(prompt, add_special_tokens=False, return_tensors="pt")["input_ids"]
            out = load(folder).generate(ids, attention_mask=torch.ones_like(ids), pad_token_id=0)[0, ids.shape[1]:].tolist()
            ends = values.get("eos_token_id", [])
            while out and (out[-1] in ends or out[-1] == 0):
                out.pop()
            want = tokenizer.decode(out, skip_special_tokens=True)
            ours = done.stdout.decode(errors="replace")[:-1]
            assert ours.strip() == want.strip(), (name, case, ours, want)
    print("generation_config.json: greedy, ends, beams as transformers")


def check_others(check):
    for name, (architecture, settings) in OTHERS.items():
        folder = check.make(name, architecture, settings)
        check.run("convert", folder, check / "converted")
        ours, theirs = (logits_of(load(f), torch.Generator().manual_seed(1)) for f in (check / "converted", folder))
        assert torch.equal(ours, theirs), name
        print(f"{name}: the same logits")
        shutil.rmtree(check / "converted")


@torch.no_grad()
def check_pairs(check):
    """T5 and Marian trained here: their folders write in transformers what `linnet translate` writes."""
    # Within Marian's positions; transformers takes a text's "<unk>" for the token of that name.
    lines = [line.replace("<unk>", "unk").strip()[:60].strip() for line in open(check.text) if len(line) > 20]
    source, target = check / "source.txt", check / "target.txt"
    for path, change in (source, str.strip), (target, lambda line: line[::-1].strip()):
        with open(path, "w") as file:
            file.writelines(change(line) + "\n" for line in lines)
    own = {"t5": ("t5-small", {}), "marian": ("translate", {"norm": "post", "final_norm": "false", "ema_decay": 0})}
    for architecture, (preset, more) in own.items():
        run, settings = check / ("run_" + architecture), dict(
            architecture=architecture, d_model=32, d_ff=64, num_heads=2, num_layers=1, max_seq_len=96, vocab_size=200,
            max_steps=60, eval_every=60, held_out_pairs=20, metric="loss", warmup_steps=5, precision="fp32",
            **more)
        check.run("train", preset, "--run", run, "--source", source, "--target", target,
                  *(part for key, value in settings.items() for part in ("--set", f"{key}={value}")))
        check.run("export", run, "--out", run + "_out")
        model, tokenizer = load(run + "_out"), transformers.AutoTokenizer.from_pretrained(run + "_out")
        ours = check.run("translate", run + "_out", "--beam", "1", input="\n".join(lines[:10]) + "\n")
        for line, text in zip(lines, ours.splitlines()):
            inputs = tokenizer(line, return_tensors="pt")
            limit = min(getattr(model.config, "max_position_embeddings", 512), 2 * inputs["input_ids"].shape[1] + 20)  # as `linnet translate` has it
            out = model.generate(**inputs, max_new_tokens=limit, do_sample=False, forced_eos_token_id=None)
            want = tokenizer.decode(out[0], skip_special_tokens=True)
            assert text.strip() == want.strip(), (architecture, text, want)
        print(f"a run of {architecture}: exported, it translates alike")


@torch.no_grad()
def check_masked(check):
    """A masked language model trained here: logits at every place."""
    run, settings = check / "run_masked", {
        "model.from": check / "bert", "data.text": check.text,
        "data.tokenizer_dir": os.path.join(os.path.dirname(TOKENIZERS), "pretrained", "bert_model", "vocab.txt"), "context": 64, "max_steps": 3, "eval_every": 3,
        "batch_size": 4, "precision": "fp32"}
    check.run("train", "bert-base", "--run", run, *(part for key, value in settings.items()
                                                  for part in ("--set", f"{key}={value}")))
    check.run("export", run, "--out", run + "_out")
    ours = json.loads(check.run("eval", run, "--json"))
    again = json.loads(check.run("eval", run + "_out", "--data", check.text, "--json"))
    load(run + "_out")
    assert 0.14 < ours["masked"] / ours["tokens"] < 0.16 and math.isfinite(again["loss"]), (ours, again)
    print(f"a run of bert_masked: loss {ours['loss']:.6f} at {ours['masked']} of {ours['tokens']} tokens; transformers loads it")


@torch.no_grad()
def check_embeddings(check):
    folder = check.make("bert", "BertModel", ENCODER, "bert.json")
    lines = [line.strip() for line in open(check.text) if len(line) > 20][:20]
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tokenizer.json"))
    check.run("convert", folder, check / "converted")
    model = load(check / "converted")
    out = check.run("embed", check / "converted", input="\n".join(lines) + "\n").splitlines()
    assert len(out) == len(lines)
    worst = 0
    for line, numbers in zip(lines, out):
        ids = torch.tensor([tokenizer(line, truncation=True, max_length=128)["input_ids"]])
        want = torch.nn.functional.normalize(model(input_ids=ids).last_hidden_state[0].mean(0), dim=0)
        worst = max(worst, (want - torch.tensor([float(x) for x in numbers.split()])).norm().item())
    assert worst < 1e-5, worst
    print(f"bert: {len(lines)} embeddings within {worst:.1e}")


@torch.no_grad()
def check_classifier(check):
    lines = [line.strip() for line in open(check.text) if len(line) > 20][:60]
    labels = ["sum" if len(line) % 2 else "none" for line in lines]
    with open(check / "train.tsv", "w") as file:
        file.writelines(f"{line[:200]}\t{label}\n".replace('"', "") for label, line in zip(labels, lines))
    run, settings = check / "run_bert", {
        "model.from": check / "bert", "data.dir": check.folder, "train_tsv": "train.tsv", "valid_tsv": "train.tsv",
        "test_tsv": "train.tsv", "context": 128, "max_steps": 3, "eval_every": 3, "batch_size": 8, "precision": "fp32"}
    check.run("train", "sst2", "--run", run, *(part for key, value in settings.items()
                                             for part in ("--set", f"{key}={value}")))
    check.run("export", run, "--out", run + "_out")
    ours = json.loads(check.run("eval", run, "--json"))
    model = load(run + "_out")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=os.path.join(run + "_out", "tokenizer.json"))
    loss, right, rows = 0, 0, [line.rstrip("\n").split("\t") for line in open(check / "train.tsv")]
    for text, label in rows:
        ids = torch.tensor([tokenizer(text, truncation=True, max_length=128)["input_ids"]])
        logits, target = model(input_ids=ids).logits.double(), torch.tensor([model.config.label2id[label]])
        loss += torch.nn.functional.cross_entropy(logits, target).item() / len(rows)
        right += int(logits.argmax() == target)
    assert abs(ours["loss"] - loss) < 1e-5 * loss, (ours, loss)
    assert abs(ours["accuracy"] - right / len(rows)) < 1e-9, (ours, right)
    print(f"a run of bert_classifier: loss {loss:.6f}, accuracy {right / len(rows):.3f}, the same in linnet")


@torch.no_grad()
def check_own_head(check, program):
    """What the library's example wrote: the encoder as transformers loads it, and the head beside it."""
    from safetensors.torch import load_file
    folder, out = check.make("bert_head", "BertModel", ENCODER, "bert.json"), check / "bert_head_out"
    lines = [line.strip().replace("\t", " ")[:120] for line in open(check.text) if len(line) > 20][:60]
    with open(check / "head.tsv", "w") as file:
        file.write("text\tlabel\n" + "".join(f"{line}\t{len(line) % 2}\n" for line in lines))
    frozen = load_file(os.path.join(folder, "model.safetensors"))
    subprocess.run([program, folder, check / "head.tsv", out, "3"], check=True, capture_output=True)
    kept = load_file(os.path.join(out, "model.safetensors"))
    prefix = "bert." if any(name.startswith("bert.") for name in kept) else ""
    for name in "embeddings.word_embeddings.weight", "encoder.layer.0.output.dense.weight", "pooler.dense.weight":
        assert torch.equal(frozen[name], kept[prefix + name]), name
    moved = "encoder.layer.2.output.dense.weight"
    assert not torch.equal(frozen[moved], kept[prefix + moved])
    model, report = transformers.BertModel.from_pretrained(out, output_loading_info=True)
    assert not any(report.values()), report
    head, model = load_file(os.path.join(out, "head.safetensors")), model.eval()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=os.path.join(out, "tokenizer.json"))
    ours = [[float(x) for x in line.split()] for line in open(os.path.join(out, "logits.txt"))]
    assert len(ours) == len(lines)
    worst = 0
    for line, row in zip(lines, ours):
        ids = torch.tensor([tokenizer(line, truncation=True, max_length=32)["input_ids"]])
        first = model(input_ids=ids).last_hidden_state[:, 0]
        hidden = torch.relu(torch.nn.functional.linear(first, head["hidden.weight"], head["hidden.bias"]))
        want = torch.nn.functional.linear(hidden, head["out.weight"], head["out.bias"])[0]
        worst = max(worst, (want - torch.tensor(row)).abs().max().item())
    assert worst < 1e-5, worst
    print(f"bert with a head, layers frozen: the logits of {len(lines)} lines within {worst:.1e}")


if __name__ == "__main__":
    head_alone = sys.argv[1:2] == ["--head"]
    if head_alone:
        del sys.argv[1]
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text.txt")
        with open(sys.argv[2]) as file, open(text, "w") as out:
            out.write(file.read(60000))
        check = Check(os.path.abspath(sys.argv[1]), text, folder)
        if head_alone:
            check_own_head(check, check.linnet)
            sys.exit()
        check_decoders(check)
        check_runs(check)
        check_generation(check)
        check_others(check)
        check_embeddings(check)
        check_classifier(check)
        check_masked(check)
        check_pairs(check)
        check_own_head(check, os.path.join(os.path.dirname(check.linnet), "../../examples/library/bert"))
