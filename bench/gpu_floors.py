"""What no step can go below: a workload's products over the rate of the matrix units, its bytes over that of memory.

Rates are what a card sustains: 0.8 of its data sheet's for dense products on the matrix units, 0.9 for fp32 outside them
and for memory. Bytes are the least: every tensor that has to pass through memory
once written and as often read as a fused step reads it; parameters, gradient and Adam's moments once.
"""

import sys

# Data sheets: TFLOP/s of dense products in bf16 and TF32 and of fp32, TB/s of memory. The first name that a card's name
# holds counts.
CARDS = {
    "H200": (989, 494, 67, 4.8), "H100 PCIe": (756, 378, 51, 2.0), "H100 NVL": (835, 417, 60, 3.9), "H100": (989, 494, 67, 3.35),
    "A100-PCIE-40GB": (312, 156, 19.5, 1.555), "A100-SXM4-40GB": (312, 156, 19.5, 1.555), "A100": (312, 156, 19.5, 2.0),
    "A10": (125, 62, 31, 0.6), "L40S": (362, 183, 91, 0.864), "L4": (121, 60, 30, 0.3), "4090": (165, 82, 82, 1.0),
}
SUSTAINED = {"bf16": 0.8, "tf32": 0.8, "fp32": 0.9, "memory": 0.9}


def rates(card: str) -> dict[str, float]:
    """-> {"bf16", "tf32", "fp32": FLOP/s, "memory": bytes/s}; empty for a card that is not known."""
    found = next((figures for name, figures in CARDS.items() if name in card), ())
    return {kind: SUSTAINED[kind] * figure * 1e12 for kind, figure in zip(SUSTAINED, found)}


def products(rows: int, d: int, ff: int, attended: float, cross: bool = False) -> float:
    """Forward FLOPs of one layer over `rows` tokens, each of which sees `attended` others (twice where cross)."""
    projections, attentions = (8, 2) if cross else (4, 1)
    return 2 * rows * d * d * projections + attentions * 4 * rows * attended * d + 4 * rows * d * ff


def parameters(d: int, ff: int, cross: bool = False) -> int:
    return (8 if cross else 4) * (d * d + d) + 2 * d * ff + ff + d + (6 if cross else 4) * d


def r(length: int, width: int) -> tuple[float, float]:
    d, ff, layers, batch, vocabulary = 256, 1024, 2, 16, 256
    rows = batch * length
    flop = layers * (products(rows, d, ff, length) + products(rows, d, ff, length, True)) + 2 * rows * d * vocabulary
    count = layers * (parameters(d, ff) + parameters(d, ff, True)) + 3 * vocabulary * d + vocabulary
    elements = layers * rows * (7 * d + ff + 12 * d + ff) + rows * vocabulary + 2 * rows * d
    return 3 * flop, 4 * width * elements + adam(count, width)


def adam(count: int, width: int) -> float:
    """Parameters and moments read and written, the gradient read; narrow weights written beside them."""
    return count * (6 * 4 + (4 if width == 4 else 2 * width + 2))


def cnn(batch: int, width: int) -> tuple[float, float]:
    del width  # images are bytes, the pooled image fp32
    convolution, dense = 2 * batch * 28 * 28 * 16 * 9, 2 * batch * 14 * 14 * 16 * 10
    return 2 * convolution + 3 * dense, batch * 784 * 2 + batch * 14 * 14 * 16 * 4 * 4 + adam(31530, 4)


def stack(layers: int, d: int, rows: int, length: int, predicted: int, vocabulary: int, causal: bool, width: int):
    """GPT and BERT: FLOPs with a causal attention at half its square; bytes of norms, residuals, bias gradients, logits."""
    flop = layers * products(rows, d, 4 * d, length * (0.5 if causal else 1)) + 2 * predicted * d * vocabulary
    count = layers * parameters(d, 4 * d) + (vocabulary + length) * d
    elements = layers * rows * 25 * d + 3 * predicted * vocabulary
    return 3 * flop, width * elements + adam(count, width)


def floor(workload: str, precision: str, card: str) -> dict:
    """-> {"flop", "bytes", "compute_ms", "memory_ms"}; empty for a workload or a card that is not known."""
    width = 2 if precision == "bf16" else 4
    family, _, rest = workload.partition("-")
    if family == "r":
        flop, moved = r(int(rest), width)
    elif family == "cnn":
        flop, moved = cnn(int(rest), width)
    elif workload == "gpt-6l":
        flop, moved = stack(6, 384, 8 * 256, 256, 8 * 256, 65, True, width)
    elif family == "gpt2":
        rows = (8 if rest.endswith("-8") else 2) * 1024
        flop, moved = stack(12, 768, rows, 1024, rows, 50257, True, width)
    elif family == "bert":
        batch = 32 if rest.endswith("-32") else 4
        flop, moved = stack(12, 768, batch * 512, 512, batch * 77, 30522, False, width)
    else:
        return {}
    rate = rates(card)
    if not rate:
        return {}
    kind = "fp32" if family == "cnn" else precision  # nine inputs are too few for the matrix units
    return {"flop": flop, "bytes": moved, "compute_ms": flop / rate[kind] * 1e3, "memory_ms": moved / rate["memory"] * 1e3}


if __name__ == "__main__":
    card = sys.argv[1] if len(sys.argv) > 1 else "H200"
    if not rates(card):
        sys.exit(f"gpu_floors: the rates of {card} are not known; those of {', '.join(CARDS)} are")
    for name in ("r-64", "r-128", "r-256", "r-384", "cnn-128", "cnn-1024", "gpt-6l", "gpt2-124m-8", "bert-base-32"):
        for kind in ("bf16", "tf32", "fp32"):
            found = floor(name, kind, card)
            print(f"{name:12} {kind}: {found['flop'] / 1e9:10.2f} GFLOP {found['compute_ms']:8.4f} ms, "
                  f"{found['bytes'] / 1e6:9.1f} MB {found['memory_ms']:8.4f} ms")
