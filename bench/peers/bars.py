"""Groups of horizontal bars as SVG, for light and dark pages."""

from html import escape

WIDTH, LABELS, TEXTS, ROW, BAR, TOP, HEAD, GAP = 820, 170, 130, 17, 11, 44, 24, 8
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #1f2933; }
  .title { font-size: 14px; font-weight: 600; }
  .group { font-weight: 600; }
  .paper { fill: #ffffff; }
  .peer { fill: #9aa5b1; }
  .own { fill: #2f6fb0; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e4e9ee; }
    .paper { fill: #14181c; }
    .peer { fill: #6b7785; }
    .own { fill: #66a6e6; }
  }
"""


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>'


def bars(title: str, groups: list[tuple[str, list[tuple[str, float, str, bool]]]]) -> str:
    """groups: (name, [(label, value, what is written behind the bar, whether it is Linnet's)]); a bar is as long as its
    share of its group's largest value."""
    drawn, y = [text(12, 24, title, "title")], TOP
    for name, rows in groups:
        drawn.append(text(12, y + 14, name, "group"))
        y += HEAD
        most = max(value for _, value, _, _ in rows)
        for label, value, behind, own in rows:
            length = (WIDTH - LABELS - TEXTS) * value / most
            drawn += [text(LABELS - 8, y + 10, label, "", "end"),
                      f'<rect x="{LABELS}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2" '
                      f'class="{"own" if own else "peer"}"/>',
                      text(LABELS + length + 6, y + 10, behind)]
            y += ROW
        y += GAP
    body = "\n".join(f"  {line}" for line in drawn)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" '
            f'role="img" aria-label="{escape(title)}">\n<style>{STYLE}</style>\n'
            f'  <rect class="paper" width="100%" height="100%"/>\n{body}\n</svg>\n')
