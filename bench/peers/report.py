"""From records of single processes to rows, bench/results/cpu.json, a Markdown table, its picture, and the README's copy."""

import datetime
import json
import os
import platform
import statistics
import subprocess
from pathlib import Path

import common
import picture

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"
ORDER = ("r-64", "r-128", "r-256", "r-384", "cnn-128", "cnn-1024", "resnet20", "resnet18", "gpt-6l", "gpt2-124m", "bert-base")
NAMES = {"jax": "JAX", "tensorflow": "TensorFlow"}
MARKS = ("<!-- bench cpu -->", "<!-- /bench cpu -->")


def spread(records: list[dict]) -> dict | None:
    """Median, min and max over rounds of each round's median."""
    medians = [record["median"] for record in records]
    if not medians:
        return None
    return {key: float(f"{function(medians):.5g}")
            for key, function in (("median", statistics.median), ("min", min), ("max", max))}


def middle(records: list[dict], field: str, function=statistics.median, digits: int = 1):
    values = [record[field] for record in records if record.get(field) is not None]
    return round(function(values), digits) if values else None


def row_of(label: str, workload: str, precision: str, records: list[dict]) -> dict:
    """The row of cpu.json; figures that were not measured are null."""
    good = [record for record in records if "error" not in record]
    sides = {side: [record for record in good if record["side"] == side]
             for side in dict.fromkeys(record["side"] for record in good)}
    ours = sides.pop("linnet", [])
    peers = {mode: spread(runs) for mode, runs in sides.items()}
    best = max(peers, key=lambda mode: peers[mode]["median"], default=None)
    theirs = sides.get(best, [])
    linnet = spread(ours)
    every = [*ours, *(record for runs in sides.values() for record in runs)]
    return {
        "workload": label, "precision": precision, "unit": every[0]["unit"] if every else None,
        "linnet": linnet, "peers": peers,
        "ratio_to_best_peer": round(linnet["median"] / peers[best]["median"], 3) if linnet and best else None,
        "fraction_of_peak": middle(ours, "fraction_of_peak", digits=3),
        "memory_mb": middle(ours, "memory_mb"),
        "peer_memory_mb": middle(theirs, "memory_mb", min),  # in the peer's favour: what the compiler left is in it
        "first_step_seconds": middle(ours, "first_step_seconds", digits=2),
        "peer_first_step_seconds": middle(theirs, "first_step_seconds", digits=2),
        "peer_cold_first_step_seconds": middle(theirs, "cold_first_step_seconds", digits=2),
        "best_peer": best, "threads": every[0]["threads"] if every else None, "rounds": len(ours),
        "milliseconds": {side: {part: middle(runs, f"{part}_ms") for part in ("forward", "backward")}
                         for side, runs in {"linnet": ours, **sides}.items()} if workload.startswith("gpt") else None,
        "failed": {record["side"]: record["error"] for record in records if "error" in record},
        "warnings": warnings(ours, theirs), "date": datetime.date.today().isoformat(), "linnet_commit": commit(),
        "torch": theirs[0]["version"] if theirs else None, "isa": ours[0].get("isa") if ours else None,
    }


def others_of(label: str, precision: str, records: list[dict], peers) -> list[dict]:
    """An entry of cpu.json for each of the peers other than PyTorch that was measured."""
    ours = [record for record in records if record["side"] == "linnet" and "error" not in record]
    linnet, found = spread(ours), []
    for peer in peers:
        theirs = [record for record in records if record["side"] == peer and "error" not in record]
        if speed := spread(theirs):
            found.append({
                "workload": label, "precision": precision, "unit": theirs[0]["unit"],
                "peer": peer, "version": theirs[0]["version"], "linnet": linnet, "speed": speed,
                "ratio": round(linnet["median"] / speed["median"], 3) if linnet else None,
                "memory_mb": middle(ours, "memory_mb"), "peer_memory_mb": middle(theirs, "memory_mb", min),
                "first_step_seconds": middle(ours, "first_step_seconds", digits=2),
                "peer_first_step_seconds": middle(theirs, "first_step_seconds", digits=2),
                "threads": theirs[0]["threads"], "rounds": len(theirs), "warnings": warnings(ours, theirs),
                "date": datetime.date.today().isoformat(), "linnet_commit": commit()})
    return found


def warnings(ours: list[dict], theirs: list[dict]) -> list[str]:
    """What says that the two sides may not have trained the same."""
    if not ours or not theirs:
        return []
    found = []
    left, right = ours[0], theirs[0]
    if left["parameters"] != right["parameters"]:
        found.append(f"{left['parameters']} parameters against {right['parameters']}")
    if abs(left["first_loss"] - right["first_loss"]) > 0.1 * right["first_loss"]:
        found.append(f"first loss {left['first_loss']:.3f} against {right['first_loss']:.3f}")
    return found


def commit() -> str:
    """The commit of the working tree, with a + where the tree has changes besides results."""
    def git(*command):
        return subprocess.run(["git", "-C", str(ROOT), *command], capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "src", "CMakeLists.txt", "cmake")
    return git("rev-parse", "--short=10", "HEAD") + ("+" if changed else "")


def machine(row: dict) -> dict:
    """The machine that this runs on."""
    cpu = next((line.partition(":")[2].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
               platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    system = platform.freedesktop_os_release() if os.path.exists("/etc/os-release") else {}
    return {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "isa": row["isa"], "memory_gb": round(memory / 1e9, 1),
            "os": system.get("PRETTY_NAME", platform.system()), "kernel": platform.release(), "torch": row["torch"],
            "date": row["date"], "linnet_commit": row["linnet_commit"]}


def place(row: dict) -> tuple:
    name = next((index for index, name in enumerate(ORDER) if row["workload"].startswith(name)), len(ORDER))
    exact = 0 if row["workload"] in ORDER else 1
    return name, exact, row["workload"], row["precision"] != "fp32"


def update(label: str, workload: str, precision: str, records: list[dict]) -> None:
    """Puts the row in place of the one of the same name in the results, where both sides were measured."""
    row = row_of(label, workload, precision, records)
    if not row["linnet"] or not row["peers"]:
        return
    RESULTS.mkdir(parents=True, exist_ok=True)
    old = results()
    rows = [other for other in old["rows"] if (other["workload"], other["precision"]) != (label, precision)]
    rows = sorted([*rows, row], key=place)
    # A row held to other instructions does not say what the machine has.
    isa = next((other["isa"] for other in (row, *rows) if other["workload"] in ORDER), row["isa"])
    whole = old | {"machine": machine(row) | {"isa": isa}, "rows": rows}
    write(whole)
    replace(RESULTS / "cpu.svg", picture.picture(whole))
    readme = ROOT / "README.md"
    before, found, rest = readme.read_text().partition(MARKS[0] + "\n")
    _, end, after = rest.partition(MARKS[1])
    if found and end:
        replace(readme, f"{before}{MARKS[0]}\n{summary(rows)}{MARKS[1]}{after}")


def update_others(label: str, precision: str, records: list[dict], peers) -> None:
    """Puts the entries of peers other than PyTorch in place of those of the same name; the rows stay as they are."""
    new = [entry for entry in others_of(label, precision, records, peers) if entry["linnet"]]
    whole = results()
    if not new or not whole["rows"]:  # the page begins with the machine of PyTorch's rows
        return
    names = [(entry["workload"], entry["precision"], entry["peer"]) for entry in new]
    kept = [entry for entry in whole.get("others", [])
            if (entry["workload"], entry["precision"], entry["peer"]) not in names]
    write(whole | {"others": sorted([*kept, *new], key=lambda entry: (*place(entry), entry["peer"]))})


def results() -> dict:
    path = RESULTS / "cpu.json"
    return json.loads(path.read_text()) if path.exists() else {"rows": []}


def write(whole: dict) -> None:
    replace(RESULTS / "cpu.json", json.dumps(whole, indent=1) + "\n")
    replace(RESULTS / "cpu.md", "# Training on the CPU, beside PyTorch\n\n" + page(whole))


def summary(rows: list[dict]) -> str:
    """A line for each workload: how many times PyTorch's best speed, and how much of its memory."""
    columns = {"fp32": ("", "fp32"), "bf16": ("", "bf16"), "fp32, AVX2": ("-avx2", "fp32")}
    lines = ["| workload | " + " | ".join(f"{name}: speed | memory" for name in columns) + " |", "|---|" + "---|" * 2 * len(columns)]
    for workload in ORDER:
        cells = []
        for suffix, precision in columns.values():
            row = next((r for r in rows if (r["workload"], r["precision"]) == (workload + suffix, precision)), None)
            cells += [f"{row['ratio_to_best_peer']:.2f}x", f"{row['memory_mb'] / row['peer_memory_mb']:.2f}"] if row else ["", ""]
        lines.append(f"| {workload} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def replace(path: Path, text: str) -> None:
    """All of the file or, when the disk is full, the old one."""
    draft = path.with_suffix(path.suffix + ".new")
    draft.write_text(text)
    draft.replace(path)


def page(whole: dict) -> str:
    """The results as Markdown."""
    about = whole["machine"]
    threads = sorted({str(row["threads"]) for row in whole["rows"]})
    lines = [f"{about['cpu']}, {about['cores']} cores, {about['isa']}, {about['memory_gb']} GB, {about['os']}; "
             f"{' or '.join(threads)} threads; PyTorch {about['torch']}; Linnet {about['linnet_commit']}; "
             f"{about['date']}. Medians of the rounds, lowest and highest behind them; in bold PyTorch's best.", "",
             table(whole["rows"]), ""]
    parts = [row for row in whole["rows"] if row["milliseconds"]]
    if parts:
        lines += [parts_table(parts), ""]
    for row in whole["rows"]:
        notes = [f"PyTorch {side}: {error}" if side != "linnet" else f"Linnet: {error}"
                 for side, error in row["failed"].items()] + row["warnings"]
        lines += [f"{row['workload']} {row['precision']}: {note}\n" for note in notes]
    if whole.get("others"):
        lines += ["## Beside JAX and TensorFlow", "", others_table(whole["others"]), ""]
        lines += [f"{entry['workload']} {entry['precision']} {entry['peer']}: {note}\n"
                  for entry in whole["others"] for note in entry["warnings"]]
    return "\n".join(lines)


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def figure(found: dict | None, bold: bool = False) -> str:
    if not found:
        return "-"
    median = f"**{number(found['median'])}**" if bold else number(found["median"])
    return f"{median} ({number(found['min'])}-{number(found['max'])})"


def show(value, form: str = "{:,.0f}") -> str:
    return "-" if value is None else form.format(value)


def table(rows: list[dict]) -> str:
    """One line a row; speed is in the row's unit."""
    modes = list(dict.fromkeys(mode for row in rows for mode in ("eager", "compile", "tuned")
                               if mode in row["peers"] or mode in row["failed"]))
    head = ["workload", "", "Linnet", *(f"PyTorch {mode}" for mode in modes), "ratio to the best", "of the peak",
            "MB", "PyTorch MB", "first step, s", "PyTorch's (compiler's cache empty)"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        peers = [figure(row["peers"].get(mode), mode == row["best_peer"]) if mode not in row["failed"] else "failed"
                 for mode in modes]
        theirs = show(row["peer_first_step_seconds"], "{:.1f}")
        if row["peer_cold_first_step_seconds"]:
            theirs += f" ({row['peer_cold_first_step_seconds']:.0f})"
        cells = [row["workload"], f"{row['precision']}, {row['unit']}", figure(row["linnet"]), *peers,
                 show(row["ratio_to_best_peer"], "{:.2f}"), show(row["fraction_of_peak"], "{:.0%}"),
                 show(row["memory_mb"]), show(row["peer_memory_mb"]), show(row["first_step_seconds"], "{:.2f}"), theirs]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def others_table(entries: list[dict]) -> str:
    """One line for each workload, precision and peer; Linnet was measured in the same rounds."""
    head = ["workload", "", "peer", "Linnet", "peer's speed", "ratio", "MB", "peer's MB", "first step, s", "peer's",
            "measured"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for entry in entries:
        cells = [entry["workload"], f"{entry['precision']}, {entry['unit']}",
                 f"{NAMES[entry['peer']]} {entry['version']}", figure(entry["linnet"]),
                 figure(entry["speed"]), show(entry["ratio"], "{:.2f}"),
                 show(entry["memory_mb"]), show(entry["peer_memory_mb"]), show(entry["first_step_seconds"], "{:.2f}"),
                 show(entry["peer_first_step_seconds"], "{:.1f}"), f"{entry['date']}, {entry['linnet_commit']}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def parts_table(rows: list[dict]) -> str:
    """Milliseconds of forward and backward pass."""
    sides = list(dict.fromkeys(side for row in rows for side in row["milliseconds"]))
    names = ["Linnet" if side == "linnet" else f"PyTorch {side}" for side in sides]
    lines = ["| forward + backward, ms | | " + " | ".join(names) + " |", "|" + "---|" * (len(sides) + 2)]
    for row in rows:
        cells = [row["workload"], row["precision"]]
        for side in sides:
            parts = row["milliseconds"].get(side, {})
            cells.append(f"{show(parts.get('forward'))} + {show(parts.get('backward'))}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
