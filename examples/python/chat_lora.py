"""Adapters for a language model, trained on a text, then a conversation: python chat_lora.py FOLDER TEXT RUN [STEPS]"""

import sys
from typing import Any

import linnet as ln


def main(folder: str, text: str, run: str, steps: int) -> str:
    report = ln.train(
        "language",
        text,
        run,
        steps=steps,
        rate=1e-3,
        model_from=folder,
        rank=8,
        targets="q_proj,v_proj",
        context=32,
        batch_size=4,
        eval_every=steps,
    )
    print(f"loss {report.best_loss} after {report.steps} steps")

    with ln.load(run) as model:
        print(model.info)
        options: dict[str, Any] = dict(max_tokens=20, temperature=0.7, seed=1)
        answer = ""
        if model.info["chat"]:
            pieces = model.stream_chat([{"role": "user", "content": "Who are you?"}], **options)
        else:  # a folder without a chat template goes on from a text
            pieces = model.stream("Who are you?", **options)
        for piece in pieces:
            print(piece, end="", flush=True)
            answer += piece
        print()
    return answer


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]) if len(sys.argv) > 4 else 100)
