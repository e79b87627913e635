"""The table of training steps as a picture (SVG, for light and dark pages): speed and memory beside PyTorch's best mode.

    bench/peers/picture.py      draws bench/results/cpu.svg from bench/results/cpu.json
"""

import json
import math
from html import escape
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[1] / "results"
WIDTH, LEFT, ROW, BAR, TOP, BOTTOM = 860, 150, 24, 12, 74, 46
SPEED, MEMORY = (LEFT, 480), (590, 840)  # left and right end of each chart
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #1f2933; }
  .title { font-size: 14px; font-weight: 600; }
  .soft { fill: #52606d; }
  .value { paint-order: stroke; stroke: #ffffff; stroke-width: 3px; }
  .grid { stroke: #d5dbe1; }
  .peer { stroke: #52606d; stroke-dasharray: 3 3; }
  .fp32 { fill: #2f6fb0; }
  .bf16 { fill: #d17f1f; }
  .paper { fill: #ffffff; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e4e9ee; }
    .soft { fill: #a6b1bc; }
    .value { stroke: #14181c; }
    .grid { stroke: #3a444e; }
    .peer { stroke: #a6b1bc; }
    .fp32 { fill: #66a6e6; }
    .bf16 { fill: #eda84e; }
    .paper { fill: #14181c; }
  }
"""


def picture(whole: dict) -> str:
    """SVG of the rows that have a figure of both sides."""
    rows = [row for row in whole["rows"] if row["ratio_to_best_peer"] and row["memory_mb"] and row["peer_memory_mb"]]
    height = TOP + ROW * len(rows) + BOTTOM
    about = whole["machine"]
    most = max([2.0, *(row["ratio_to_best_peer"] for row in rows)])
    least = min([1.0, *(row["ratio_to_best_peer"] for row in rows)])
    drawn = [text(SPEED[0], 22, "Speed, times PyTorch's best mode (log scale)", "title"),
             text(MEMORY[0], 22, "Memory, share of that mode's", "title"),
             *legend(), *speed_axis(least, most, height), *memory_axis(height)]
    for index, row in enumerate(rows):
        drawn += one_row(row, TOP + ROW * index, least, most)
    note = f"Training steps. {about['cpu']}, {about['cores']} cores, PyTorch {about['torch']}, {about['date']}."
    drawn.append(text(SPEED[0], height - 8, note, "soft"))
    body = "\n".join(f"  {line}" for line in drawn)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            f'role="img" aria-label="{escape(spoken(rows))}">\n<style>{STYLE}</style>\n'
            f'  <rect class="paper" width="100%" height="100%"/>\n{body}\n</svg>\n')


def spoken(rows: list[dict]) -> str:
    """What a reader who cannot see the picture is told."""
    return "Speed beside PyTorch: " + ", ".join(
        f"{row['workload']} {row['precision']} {row['ratio_to_best_peer']:.2f} times" for row in rows)


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    kind = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{escape(words)}</text>'


def line(x: float, height: int, kind: str) -> str:
    return f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{height - BOTTOM + 4}" class="{kind}"/>'


def legend() -> list[str]:
    found = []
    for index, precision in enumerate(("fp32", "bf16")):
        found += [f'<rect x="{12 + 62 * index}" y="12" width="12" height="12" class="{precision}"/>',
                  text(28 + 62 * index, 22, precision)]
    return found


def speed_place(ratio: float, least: float, most: float) -> float:
    """Ratios lie on a logarithmic scale, so that 2 times and half as fast are equally far from 1."""
    low, high = math.log(min(least, 1.0)), math.log(most)
    return SPEED[0] + (math.log(ratio) - low) / (high - low) * (SPEED[1] - SPEED[0] - 50)


def speed_axis(least: float, most: float, height: int) -> list[str]:
    found = []
    for ratio in (0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0):
        if min(least, 1.0) <= ratio <= most:
            x = speed_place(ratio, least, most)
            found += [line(x, height, "peer" if ratio == 1.0 else "grid"),
                      text(x, TOP - 14, "PyTorch" if ratio == 1.0 else f"{ratio:g}", "soft", "middle")]
    return found


def memory_axis(height: int) -> list[str]:
    found = []
    for share in (0.0, 0.5, 1.0):
        x = memory_place(share)
        found += [line(x, height, "peer" if share == 1.0 else "grid"),
                  text(x, TOP - 14, "PyTorch" if share == 1.0 else f"{share:g}", "soft", "middle")]
    return found


def memory_place(share: float) -> float:
    return MEMORY[0] + share * (MEMORY[1] - MEMORY[0] - 30)


def one_row(row: dict, y: int, least: float, most: float) -> list[str]:
    ratio, share = row["ratio_to_best_peer"], row["memory_mb"] / row["peer_memory_mb"]
    one, end = speed_place(1.0, least, most), speed_place(ratio, least, most)
    kind, base = row["precision"], y + BAR - 2
    return [text(12, base, row["workload"]),
            bar(min(one, end), abs(end - one), y, kind), text(max(one, end) + 5, base, f"{ratio:.2f}", "value"),
            bar(MEMORY[0], memory_place(share) - MEMORY[0], y, kind),
            text(memory_place(share) + 5, base, f"{share:.2f}", "value"),
            text(MEMORY[0] - 8, base, f"{row['memory_mb']:,.0f} MB", "soft", "end")]


def bar(x: float, width: float, y: int, kind: str) -> str:
    return f'<rect x="{x:.1f}" y="{y}" width="{max(width, 1.0):.1f}" height="{BAR}" rx="2" class="{kind}"/>'


if __name__ == "__main__":
    (RESULTS / "cpu.svg").write_text(picture(json.loads((RESULTS / "cpu.json").read_text())))
