#!/usr/bin/env python3
"""Reads what a run left with the libraries that people read it with, and compares.

    bench/check_profile.py RUN...

Traces: HolisticTraceAnalysis parses them unpatched; slices nest on every track; on the main thread the ops of a step and
its waiting for data add up to its wall time within 3%; every event has what Perfetto's importer of JSON wants of it. With
trace_processor_shell on the PATH and the Python package `perfetto`, Perfetto reads them, too. Events: TensorBoard's EventAccumulator finds the values of metrics.jsonl, every step once.
Needs the packages HolisticTraceAnalysis and tensorboard.
"""

import glob
import json
import math
import shutil
import struct
import sys
import warnings
from collections import defaultdict

warnings.filterwarnings("ignore")


def float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def check_nesting(events):
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            begin = round(event["ts"] * 1000)
            tracks[event["tid"]].append((begin, -(begin + round(event["dur"] * 1000)), event["name"]))
    for track, slices in tracks.items():
        open_slices = []
        for begin, end, name in sorted(slices):
            while open_slices and open_slices[-1] <= begin:
                open_slices.pop()
            assert not open_slices or -end <= open_slices[-1], f"{name} on track {track} crosses the slice around it"
            open_slices.append(-end)
    return len(tracks)


def check_sums(events):
    steps = [e for e in events if e["name"].startswith("ProfilerStep#")]
    shares = []
    for step in steps:
        inside = sum(e["dur"] for e in events if e["ph"] == "X" and e["cat"] == "cpu_op" and e["tid"] == 0
                     and step["ts"] <= e["ts"] < step["ts"] + step["dur"])
        shares.append(inside / step["dur"])
        assert abs(1 - shares[-1]) < 0.03, f"{step['name']}: its ops take {shares[-1]:.1%} of it"
    return shares


def check_with_hta(path):
    from hta.trace_analysis import TraceAnalysis

    analysis = TraceAnalysis(trace_files={0: path}, trace_dir=".")
    frame, names = analysis.t.get_trace(0), analysis.t.symbol_table.sym_table
    assert any(names[name].startswith("ProfilerStep#") for name in frame["name"])
    return len(frame)


def check_schema(events):
    """What trace_processor's JSON importer reads of an event; it drops or counts as errors what has another form."""
    for event in events:
        where = json.dumps(event)[:200]
        assert event["ph"] in "XCM" and isinstance(event["name"], str) and event["name"], where
        assert isinstance(event["pid"], int), where
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name") and isinstance(event["args"]["name"], str), where
            continue
        assert isinstance(event["tid"], int) and math.isfinite(event["ts"]) and event["ts"] >= 0, where
        if event["ph"] == "X":
            assert math.isfinite(event["dur"]) and event["dur"] >= 0 and isinstance(event["args"], dict), where
        else:
            assert event["args"] and all(math.isfinite(value) for value in event["args"].values()), where


def check_with_perfetto(path):
    program = shutil.which("trace_processor_shell")
    if not program:
        return "its program is not here, the events have the form that it reads"
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

    processor = TraceProcessor(trace=path, config=TraceProcessorConfig(bin_path=program))
    errors = [row.name for row in processor.query("select name from stats where severity = 'error' and value > 0")]
    count = next(iter(processor.query("select count(*) as n from slice"))).n
    processor.close()
    assert not errors, errors
    return f"{count} slices"


def check_events(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(run, size_guidance={"scalars": 0, "histograms": 0, "tensors": 0})
    accumulator.Reload()
    lines = [json.loads(line) for line in open(run + "/metrics.jsonl")]
    for tag in accumulator.Tags()["scalars"]:
        group, name = tag.split("/")
        found = [(event.step, event.value) for event in accumulator.Scalars(tag)]
        wanted = [(line["step"], float32(line[name])) for line in lines
                  if (line["split"] == "train") == (group == "train") and line.get(name) is not None]
        assert found == wanted, f"{tag}: {found[:3]}... and {wanted[:3]}..."
    tags = accumulator.Tags()
    return f"{len(tags['scalars'])} scalars with the values of metrics.jsonl, {len(tags['histograms'])} histograms"


def main():
    for run in sys.argv[1:]:
        for path in sorted(glob.glob(run + "/profile/*.trace.json")):
            events = json.load(open(path))["traceEvents"]
            check_schema(events)
            tracks, shares = check_nesting(events), check_sums(events)
            print(f"{path}: {len(events)} events nest on {tracks} tracks; ops and data are "
                  f"{min(shares):.2%} to {max(shares):.2%} of a step; HTA reads {check_with_hta(path)} rows; "
                  f"Perfetto: {check_with_perfetto(path)}")
        if glob.glob(run + "/events.out.tfevents.*"):
            print(f"{run}: {check_events(run)}")


main()
