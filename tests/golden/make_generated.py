"""What transformers writes with the tiny checkpoints of pretrained/: greedily, and by a search of three beams.

    python make_generated.py        needs torch and transformers; after make_gpt2.py, make_llama.py, make_t5.py and make_marian.py

pretrained/generated.json: for each folder a list of {"prompt", "greedy", "beam"}, all token ids; what is written ends
before the end token. Padding is never written.
"""

import json
import os

import torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

from pretrained_common import FOLDER, prepare

DECODERS, OTHERS = ["gpt2", "llama"], ["t5", "t5_gated", "marian"]
NEW_TOKENS, BEAMS = 14, 3


def write(name, kind):
    model = kind.from_pretrained(os.path.join(FOLDER, name)).double().eval()
    decoder = name in DECODERS
    end, pad = model.config.eos_token_id, None if decoder else model.config.pad_token_id
    generator = torch.Generator().manual_seed(7)
    cases = []
    for length in (3, 5, 6):
        prompt = torch.randint(5, 60, (1, length), generator=generator)
        # As `linnet generate` reads a prompt: an encoder-decoder's ends with the end token.
        ids = prompt if decoder else torch.cat([prompt, torch.tensor([[end]])], dim=1)
        case = {"prompt": prompt[0].tolist()}
        for key, beams in ("greedy", 1), ("beam", BEAMS):
            out = model.generate(ids, attention_mask=torch.ones_like(ids), num_beams=beams, do_sample=False,
                                 max_new_tokens=NEW_TOKENS, pad_token_id=0 if decoder else pad,
                                 bad_words_ids=None if decoder else [[pad]])[0].tolist()
            out = out[length:] if decoder else out[1:]
            case[key] = out[:out.index(end)] if end in out else out
        cases.append(case)
    return cases


if __name__ == "__main__":
    prepare()
    found = {name: write(name, AutoModelForCausalLM) for name in DECODERS}
    found.update({name: write(name, AutoModelForSeq2SeqLM) for name in OTHERS})
    with open(os.path.join(FOLDER, "generated.json"), "w") as file:
        json.dump(found, file, indent=1)
        file.write("\n")
