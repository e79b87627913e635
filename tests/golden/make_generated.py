"""What transformers writes with the tiny checkpoints of pretrained/: greedily, and by searches.

    python make_generated.py        needs torch and transformers; after make_gpt2.py, make_decoders.py, make_t5.py and make_marian.py

pretrained/generated.json: for each folder a list of {"prompt", "greedy", "beam"}, all token ids; what is written ends
before the end token. Padding is never written.
pretrained/searched.json: for each folder a list of {"prompt", "config", "written"}: other searches, with several ends so
that texts of many lengths compete, finished ones and those cut off, and texts that must not repeat themselves or end
early; config is a generation_config.json.
"""

import json
import os

import torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, GenerationConfig

from pretrained_common import FOLDER, prepare

DECODERS, OTHERS = ["gpt2", "llama"], ["t5", "t5_gated", "marian"]
NEWER = ["bart", "pegasus", "mbart", "m2m_100"]  # greedily and with beams alone
NEW_TOKENS, BEAMS = 14, 3
SOURCE_LANGUAGE, FIRST = 58, 0


def framed(name, prompt, end):
    """As `linnet generate` reads a prompt: an encoder-decoder's ends with the end token."""
    before = {"bart": [FIRST], "m2m_100": [SOURCE_LANGUAGE]}.get(name, [])
    behind = [end] + ([SOURCE_LANGUAGE] if name == "mbart" else [])
    return torch.cat([torch.tensor([before], dtype=torch.long), prompt, torch.tensor([behind])], dim=1)


def never(model, end):
    """Padding, and what decoding begins with."""
    return [[token] for token in {model.config.pad_token_id, model.generation_config.decoder_start_token_id} - {end}]


def write(name, kind):
    model = kind.from_pretrained(os.path.join(FOLDER, name)).double().eval()
    decoder = name in DECODERS
    end, pad = model.config.eos_token_id, None if decoder else model.config.pad_token_id
    generator = torch.Generator().manual_seed(7)
    cases = []
    for length in (3, 5, 6):
        prompt = torch.randint(5, 60, (1, length), generator=generator)
        ids = prompt if decoder else framed(name, prompt, end)
        case = {"prompt": prompt[0].tolist()}
        for key, beams in ("greedy", 1), ("beam", BEAMS):
            out = model.generate(ids, attention_mask=torch.ones_like(ids), num_beams=beams, do_sample=False,
                                 max_new_tokens=NEW_TOKENS, pad_token_id=0 if decoder else pad,
                                 bad_words_ids=None if decoder else never(model, end))[0].tolist()
            out = out[length:] if decoder else out[1:]
            case[key] = out[:out.index(end)] if end in out else out
        cases.append(case)
    return cases


def search(name, kind):
    model = kind.from_pretrained(os.path.join(FOLDER, name)).double().eval()
    decoder = name in DECODERS
    end, pad = model.config.eos_token_id, 0 if decoder else model.config.pad_token_id
    generator = torch.Generator().manual_seed(11)
    model.generation_config = GenerationConfig()  # nothing but what is said below
    cases = []

    def add(ends, config):
        prompt = torch.randint(5, 60, (1, 4), generator=generator)
        ids = prompt if decoder else torch.cat([prompt, torch.tensor([[end]])], dim=1)
        config["eos_token_id"] = [end] + torch.randint(5, 60, (ends,), generator=generator).tolist()
        if name == "marian":
            config["forced_eos_token_id"] = end
        start = {} if decoder else {"decoder_start_token_id": model.config.decoder_start_token_id,
                                    "bad_words_ids": [[pad]]}
        out = model.generate(ids, attention_mask=torch.ones_like(ids), pad_token_id=pad, **start,
                             **({"do_sample": False} | config))[0].tolist()[ids.shape[1] if decoder else 1:]
        least = config.get("min_new_tokens", config.get("min_length", 0) - (ids.shape[1] if decoder else 1))
        length = next((i for i, token in enumerate(out) if token in config["eos_token_id"] and i >= least), len(out))
        cases.append({"prompt": prompt[0].tolist(), "config": config, "written": out[:length]})

    for early_stopping in False, True, "never":
        for penalty, beams, limit, ends in (1.0, 3, 6, 2), (0.0, 4, 9, 3), (2.0, 2, 12, 4), (-0.5, 3, 5, 2), (0.6, 5, 16, 6):
            add(ends, {"num_beams": beams, "length_penalty": penalty, "early_stopping": early_stopping,
                       "max_new_tokens": limit})
    for beams in 1, 4:  # greedily and by a search
        for rules in ({"no_repeat_ngram_size": 1}, {"no_repeat_ngram_size": 2}, {"no_repeat_ngram_size": 3, "min_length": 9},
                      {"min_new_tokens": 8}, {"min_length": 12, "no_repeat_ngram_size": 2}):
            add(6, {"num_beams": beams, "do_sample": False, "max_new_tokens": 16} | rules)
    return cases


def keep(file_name, function):
    found = {name: function(name, AutoModelForCausalLM) for name in DECODERS}
    others = OTHERS + NEWER if function is write else OTHERS
    found.update({name: function(name, AutoModelForSeq2SeqLM) for name in others})
    with open(os.path.join(FOLDER, file_name), "w") as file:
        json.dump(found, file, indent=1 if function is write else None)
        file.write("\n")


if __name__ == "__main__":
    prepare()
    keep("generated.json", write)
    keep("searched.json", search)
