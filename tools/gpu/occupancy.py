#!/usr/bin/env python3
"""Prints what each of Linnet's CUDA kernels takes of a multiprocessor, without a GPU: `./dev gpu occupancy [PATTERN ...]`.

Compiles the sources that build/cuda lists (cmake --preset cuda), or those whose path contains a PATTERN, reads registers,
shared and local memory from the machine code, and computes how many blocks fit. A kernel that spills is an error.
Shared memory that a kernel asks for at its launch is known of attention's tiles alone; "+" marks kernels that ask for more.
"""

import json
import re
import shlex
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

COMMANDS = Path("build/cuda/compile_commands.json")

# Compute capability 9.0 (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"); 8.0 differs in
# nothing but shared memory.
REGISTERS, THREADS, BLOCKS, WARP = 65536, 2048, 32, 32
REGISTER_UNIT = 256  # a warp's registers are given out in units of so many
SHARED_KIB = {"80": 164, "90": 228}
SHARED_OF_A_BLOCK = 1024  # taken by the system

# Attributes of .nv.info sections.
MAX_THREADS, REGISTER_COUNT, FRAME_SIZE = 0x05, 0x2F, 0x11
SIZED = 0x04  # the format of attributes with a size


@dataclass
class Kernel:
    name: str
    registers: int = 0
    threads: int = 0  # of a block, by its launch bounds; 0: it has none
    shared: int = 0
    local: int = 0
    asks: bool = False  # for shared memory at its launch

    def blocks(self, architecture: str) -> int:
        warps = (self.threads + WARP - 1) // WARP
        of_a_warp = -(-self.registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
        by_registers = REGISTERS // of_a_warp // warps if of_a_warp else BLOCKS
        by_shared = SHARED_KIB[architecture] * 1024 // (self.shared + SHARED_OF_A_BLOCK)
        return min(by_registers, by_shared, THREADS // (warps * WARP), BLOCKS)


def sections(elf: bytes) -> Iterator[tuple[str, int, int, bytes]]:
    """Name, kind, size and contents."""
    start = struct.unpack_from("<Q", elf, 40)[0]
    width, count, names = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, start + i * width) for i in range(count)]
    text = headers[names][4]
    for header in headers:
        name = elf[text + header[0] : elf.index(b"\0", text + header[0])].decode()
        kind, at, size = header[1], header[4], header[5]
        yield name, kind, size, elf[at : at + size]


def attributes(info: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(info):
        form, key, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == SIZED:
            yield key, info[at : at + size]
            at += size


def symbol_names(parts: dict[str, bytes]) -> list[str]:
    table, text = parts[".symtab"], parts[".strtab"]
    names = [struct.unpack_from("<I", table, i)[0] for i in range(0, len(table), 24)]
    return [text[name : text.index(b"\0", name)].decode() for name in names]


def asked_shared(name: str) -> int | None:
    """Bytes that a kernel asks for at its launch. Attention's depend on its tile (attention_tiles_cuda.cuh)."""
    if "weight_gradients_kernel" in name:
        return 2 * 64 * (64 + 8 + 128 + 8) * 2
    tile = re.search(r"TilesILi(\d+)ELi(\d+)E", name)
    if not tile:
        return None
    size, rows = int(tile[1]), int(tile[2])
    tiles, sums = (2, 0) if "forward_kernel" in name else (4, rows)
    return 4 * (tiles * rows * (size + 8) + rows * (rows + 4) + sums) + rows * rows // 8


def read_kernels(elf: bytes) -> list[Kernel]:
    parts, sizes = {}, {}
    for name, _, size, contents in sections(elf):
        parts[name], sizes[name] = contents, size
    symbols = symbol_names(parts)
    kernels = {
        name.removeprefix(".text."): Kernel(name.removeprefix(".text.")) for name in parts if name.startswith(".text.")
    }
    for key, value in attributes(parts[".nv.info"]):
        if key in (REGISTER_COUNT, FRAME_SIZE):
            symbol, number = struct.unpack("<II", value)
            if kernel := kernels.get(symbols[symbol]):
                setattr(kernel, "registers" if key == REGISTER_COUNT else "local", number)
    for name, kernel in kernels.items():
        for key, value in attributes(parts.get(f".nv.info.{name}", b"")):
            if key == MAX_THREADS:
                kernel.threads = struct.unpack_from("<I", value)[0]
        kernel.shared = sizes.get(f".nv.shared.{name}", 0)
        asked = asked_shared(name)
        kernel.shared += asked or 0
        kernel.asks = asked is None and any("linnet_dynamic_shared" in symbol for symbol in symbols)
    return list(kernels.values())


def compile_kernels(command: str, folder: Path, number: int) -> list[Kernel]:
    """The machine code alone, for the first architecture that the build is for."""
    words = shlex.split(command)
    words[words.index("-c")] = "-cubin"
    made = folder / f"{number}.cubin"
    words[words.index("-o") + 1] = str(made)
    architecture = architecture_of(words)
    words = [word for word in words if not word.startswith(("--generate-code", "-Xcompiler"))]
    subprocess.run([*words, f"-arch=sm_{architecture}"], check=True, cwd=COMMANDS.parent)
    return read_kernels(made.read_bytes())


def architecture_of(words: list[str]) -> str:
    return next(word for word in words if word.startswith("--generate-code")).split("sm_")[1].rstrip("]")


def short(name: str) -> str:
    """A demangled name without namespaces, parameters and "(bool)1"."""
    name = re.sub(r"\((int|bool|unsigned int)\)", "", name.removeprefix("void "))
    name = re.sub(r"\(anonymous namespace\)::|<unnamed>::|linnet::", "", name)
    depth, end = 0, len(name)
    for i, letter in enumerate(name):
        depth += {"<": 1, ">": -1}.get(letter, 0)
        if letter == "(" and depth == 0 and i > 0:
            end = i
            break
    return name[:end]


def main() -> None:
    if not COMMANDS.exists():
        sys.exit(f"occupancy: {COMMANDS} is missing: `cmake --preset cuda` makes it; it needs the CUDA toolkit")
    patterns = sys.argv[1:]
    commands = [
        entry["command"]
        for entry in json.loads(COMMANDS.read_text())
        if "nvcc" in entry["command"].split()[0]
        and entry["file"].endswith(".cu")
        and (not patterns or any(pattern in entry["file"] for pattern in patterns))
    ]
    if not commands:
        sys.exit(f"occupancy: no CUDA source's path contains {' or '.join(patterns)}")
    architecture = architecture_of(shlex.split(commands[0]))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda job: compile_kernels(job[1], Path(folder), job[0]), enumerate(commands)))
    kernels = {kernel.name: kernel for some in made for kernel in some}
    names = subprocess.run(
        ["c++filt"], input="\n".join(kernels), capture_output=True, text=True, check=True
    ).stdout.splitlines()
    rows = sorted(zip(map(short, names), kernels.values(), strict=True), key=lambda row: row[0])
    print(f"compute capability {architecture[0]}.{architecture[1]}: {len(rows)} kernels")
    print(f"{'registers':>9} {'shared':>8} {'threads':>7} {'blocks':>6} {'warps':>5}  kernel")
    for name, kernel in rows:
        shared = f"{kernel.shared}{'+' if kernel.asks else ''}"
        if not kernel.threads:
            print(f"{kernel.registers:9} {shared:>8} {'any':>7} {'-':>6} {'-':>5}  {name}")
            continue
        blocks = kernel.blocks(architecture)
        share = 100 * blocks * -(-kernel.threads // WARP) * WARP // THREADS
        print(f"{kernel.registers:9} {shared:>8} {kernel.threads:7} {blocks:6} {share:4}%  {name}")
    if spilling := [name for name, kernel in rows if kernel.local]:
        sys.exit("occupancy: these use local memory: " + ", ".join(spilling))


if __name__ == "__main__":
    main()
