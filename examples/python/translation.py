"""A translator of one's own pairs, trained by task: python translation.py [STEPS]. It learns to spell numbers out."""

import sys
from typing import Any

import linnet as ln

ONES = "zero one two three four five six seven eight nine".split()


def pairs(first: int, last: int) -> list[tuple[str, str]]:
    return [(" ".join(str(n)), " ".join(ONES[int(digit)] for digit in str(n))) for n in range(first, last)]


def show(event: ln.TrainEvent) -> None:
    if event.metrics:
        print(f"step {event.step}: validation loss {event.loss:.3f}, BLEU {event.metrics['bleu']:.1f}")


def main(run: str, steps: int) -> str:
    model: dict[str, Any] = dict(d_model=64, num_heads=4, num_layers=2, d_ff=128, max_seq_len=32)
    data: dict[str, Any] = dict(tokenizer="word", batch_size=32)
    print(ln.plan("translate", pairs(100, 2000), valid=pairs(2000, 2100), **model, **data))
    report = ln.train(
        "translate",
        pairs(100, 2000),
        run,
        valid=pairs(2000, 2100),
        steps=steps,
        rate=2e-3,
        eval_every=steps // 2,
        metric="loss",
        callbacks=[show],
        **model,
        **data,
    )
    print(f"{report.steps} steps in {report.seconds:.1f} s")
    with ln.load(run) as model_:
        answer = model_.translate("1 2 3")
    print(answer)
    return answer


if __name__ == "__main__":
    main("runs/numbers", int(sys.argv[1]) if len(sys.argv) > 1 else 400)
