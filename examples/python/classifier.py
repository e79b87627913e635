"""Fine-tuning a text classifier: python classifier.py BERT_FOLDER TRAIN.TSV VALID.TSV RUN [STEPS]. Lines of the files
are text, tab, label."""

import sys
from typing import Any

import linnet as ln


def main(folder: str, train: str, valid: str, run: str, steps: int) -> float:
    settings: dict[str, Any] = dict(model_from=folder, batch_size=16)
    plan = ln.plan("classify", train, valid=valid, **settings)
    print(plan)

    best = 0.0

    def hear(event: ln.TrainEvent) -> bool:
        nonlocal best
        if event.metrics:
            best = max(best, event.metrics["accuracy"])
            print(f"step {event.step}: accuracy {event.metrics['accuracy']:.3f}")
        return best < 0.999  # False ends the run, saved

    ln.train(
        "classify",
        train,
        run,
        valid=valid,
        steps=steps,
        rate=1e-3,
        eval_every=max(steps // 4, 1),
        callbacks=[hear],
        **settings,
    )
    ln.report(run).save(f"{run}/report.html")
    with ln.load(run) as model, open(valid, encoding="utf-8") as lines:
        for line in list(lines)[:3]:
            text = line.split("\t")[0]
            answer = model.classify(text)
            print(f"{answer.label} ({answer.probability:.2f}): {text}")
    return best


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]) if len(sys.argv) > 5 else 200)
