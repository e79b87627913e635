"""Twenty steps of DPO on conversations in ChatML, as TRL computes them.

    python make_preferences.py        needs torch, transformers, datasets and trl (bench/peers/preferences.py)

Writes preferences/: a random Llama with its tokenizer and chat template, pairs.jsonl, and trl.json with the loss of each step
and, after each but the last, the rewards of chosen and rejected answers and the share of pairs in which the former is higher.
"""

import json
import pathlib
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "bench" / "peers"))
import preferences  # noqa: E402


def main():
    out = HERE / "preferences"
    shutil.rmtree(out, ignore_errors=True)
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        preferences.make_folder(work / "model", width=16)
        pairs = preferences.make_pairs("messages")
        (work / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
        losses, rewards = preferences.train_trl(work, "dpo")
        shutil.copytree(work / "model", out)
        shutil.copy(work / "pairs.jsonl", out)
    (out / "trl.json").write_text(json.dumps({"losses": losses, "rewards": rewards}, indent=1) + "\n")


if __name__ == "__main__":
    main()
