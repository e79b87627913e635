#!/usr/bin/env python3
"""`gpu/run first`, rehearsed as the test gpu_rehearsal: the emulated device stands for a GPU, and in each part something
goes wrong. The call has to end in time, do what can be done, and its records have to name what happened.
"""
import argparse, json, os, shutil, subprocess, sys, time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 220  # of the call: 80 on a quiet machine
ITEM_SECONDS = 10
PROGRAM = """#!/usr/bin/env bash
set -u
real={real}
case "$*" in
{cases}
esac
exec "$real" "$@"
"""
# A suite of op tests each, and what its third kernel does. One fault is gone without recordings, one without epilogues.
OPS_TEST = """  *--gtest_list_tests*) exec "$real" --gtest_list_tests --gtest_filter=Rope.*:RandomUniform.*:Softmax.*:Argmax.*:Argsort.* ;;
  *=RandomUniform.*) [[ ${LINNET_CUDA_GRAPHS:-} == off ]] || export LINNET_EMULATED_FAULT=crash ;;
  *=Softmax.*) export LINNET_EMULATED_FAULT=hang ;;
  *=Argmax.*) [[ ${LINNET_CUBLASLT_EPILOGUES:-} == off ]] || export LINNET_EMULATED_FAULT=refuse ;;
  *=Argsort.*) export LINNET_EMULATED_FAULT=wrong ;;"""
# Workloads: the emulation is far too slow for whole ones, so the healthy one runs on the processor.
LINNET = """  "bench cnn-128"*) set -- "${@/cuda:0/cpu}"; set -- "${@/tf32/fp32}" ;;
  "bench r-64"*) export LINNET_EMULATED_FAULT=crash ;;
  "bench r-256 --precision bf16"* | "bench r-256 --device"*) export LINNET_EMULATED_FAULT=refuse ;;
  "bench bert"*) export LINNET_EMULATED_FAULT=hang ;;
  "bench cnn-1024"*) set -- "${@/cuda:0/cuda:7}" ;;
  "bench "*) echo "no memory" >&2; exit 2 ;;"""


def check(holds, what):
    if not holds:
        sys.exit(f"gpu_rehearsal: {what}")


def write_program(path, real, cases):
    path.write_text(PROGRAM.format(real=real, cases=cases))
    path.chmod(0o755)


def make_folder(options):
    """As tools/gpu/build.sh does, with programs that fail."""
    folder = options.folder / "gpu"
    shutil.rmtree(options.folder, ignore_errors=True)
    (folder / "bin").mkdir(parents=True)
    (folder / "bench").mkdir()
    write_program(folder / "bin" / "ops_test", options.ops_test, OPS_TEST)
    write_program(folder / "bin" / "linnet", options.linnet, LINNET)
    # It does not start, as a program does not whose library is missing.
    (folder / "bin" / "cuda_training_test").write_text("#!/bin/sh\necho 'libsomething.so.1: cannot open' >&2\nexit 127\n")
    (folder / "bin" / "cuda_training_test").chmod(0o755)
    shutil.copy(options.module, folder / "bin" / "liblinnet_cuda.so")
    for name in ("run", "runner.py", "journal.py"):
        shutil.copy(ROOT / "tools" / "gpu" / name, folder)
    for name in ("gpu.py", "gpu_floors.py"):
        shutil.copy(ROOT / "bench" / name, folder / "bench")
    shutil.copytree(ROOT / "bench" / "peers", folder / "bench" / "peers")
    (folder / "no-torch" / "torch").mkdir(parents=True)
    (folder / "no-torch" / "torch" / "__init__.py").write_text("raise ImportError('Error: there is no torch here')\n")
    return folder


def run(folder, part, out, **environment):
    """-> exit code, output, seconds."""
    start = time.monotonic()
    done = subprocess.run([folder / "run", *part.split()], env=os.environ | environment | {
        "OUT": str(out), "LINNET_GPU_SECONDS": str(SECONDS), "LINNET_GPU_ITEM_SECONDS": str(ITEM_SECONDS),
        "PYTHONPATH": str(folder / "no-torch")}, capture_output=True, text=True, timeout=250)
    return done.returncode, done.stdout + done.stderr, time.monotonic() - start


def records(out, part):
    return {record["item"]: record for record in map(json.loads, (out / f"{part}.jsonl").read_text().splitlines())}


def expect(record, status, **again):
    check(record["status"] == status, f"{record['item']}: {record['status']}, expected {status}: {record['last']}")
    for name, found in again.items():
        rung = {"recording": "no recording", "epilogues": "no epilogues of cuBLASLt"}[name]
        check(record["again"].get(rung) == found, f"{record['item']}, {rung}: {record['again']}")


def faults(folder, out, driver):
    code, output, seconds = run(folder, "first", out, LD_LIBRARY_PATH=str(driver))
    check(code == 1, f"exit code {code}: {output}")
    check(seconds < SECONDS + 15, f"{seconds:.0f} s")
    check((out / "test.jsonl").exists(), f"no test was run: {output}")
    tests, quick = records(out, "test"), records(out, "quick")
    log = (out / "log.txt").read_text()
    expect(tests["ops_test Rope.*"], "ok")
    expect(tests["ops_test RandomUniform.*"], "failed (-11)", recording="ok", epilogues=None)
    expect(tests["ops_test Softmax.*"], "too slow")
    expect(tests["ops_test Argmax.*"], "failed (1)", recording="failed (1)", epilogues="ok")
    expect(tests["ops_test Argsort.*"], "failed (1)")
    expect(tests["cuda_training_test *.*"], "failed (127)")
    check("cublasLtMatmul refuses this product" in log and "libsomething.so.1" in log, f"the log: {log}")
    check(tests["ops_test Argsort.*"]["failures"], "no test is named whose numbers are wrong")
    expect(quick["cnn-128 tf32"], "ok")
    expect(quick["r-64 bf16"], "failed (-11)")
    expect(quick["bert-base-32 bf16"], "too slow")
    expect(quick["r-384 bf16"], "failed (2)")
    for item, said in (("r-256 bf16", "cublasLtMatmul refuses this product"), ("cnn-1024 tf32", "cuda:7")):
        check(any(said in line for line in quick[item]["last"]), f"{item}: {quick[item]}")
    rows = [json.loads(line) for line in (out / "bench.jsonl").read_text().splitlines()]
    errors = {(row["workload"], row["side"]): row.get("error", "") for row in rows}
    check("refuses this product" in errors["r-256", "linnet"], f"{errors}")
    check("there is no torch here" in errors["r-256", "eager"], f"{errors}")
    check("failed" in (out / "bench.md").read_text(), "the table does not say what failed")
    # A second call repeats nothing of it.
    before = {name: (out / name).read_text() for name in ("test.jsonl", "quick.jsonl")}
    run(folder, "test", out, LD_LIBRARY_PATH=str(driver))
    check(all((out / name).read_text() == text for name, text in before.items()), "what was done is done again")


def main():
    parser = argparse.ArgumentParser()
    for name in ("linnet", "folder", "ops-test", "module", "driver"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args()
    folder = make_folder(options)
    faults(folder, options.folder / "out", options.driver)

    (folder / "bin" / "liblinnet_cuda.so").unlink()
    code, output, _ = run(folder, "test", options.folder / "no-module", LD_LIBRARY_PATH=str(options.driver))
    found = records(options.folder / "no-module", "test")["ops_test Rope.*"]
    check(code == 1 and any("liblinnet_cuda.so" in line for line in (options.folder / "no-module" / "log.txt").read_text()
                            .splitlines()), f"a missing module: {found} {output}")

    shutil.rmtree(options.folder / "empty", ignore_errors=True)
    (options.folder / "empty").mkdir()
    (options.folder / "empty" / "libcuda.so.1").write_text("no library")
    code, output, seconds = run(folder, "first", options.folder / "no-driver", LD_LIBRARY_PATH=str(options.folder / "empty"))
    check(code == 1 and "no NVIDIA driver here" in output and seconds < 20, f"no driver: {code} {output}")
    print("gpu_rehearsal: all faults are named")


if __name__ == "__main__":
    main()
