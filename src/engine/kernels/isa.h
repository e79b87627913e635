// The instruction set of the kernels. All are compiled into the library; the best one of the processor is used unless
// one is forced (to reproduce another machine's bits, or to test).
#pragma once
#include <string>
#include <vector>

namespace linnet {
// Those of this processor, best first: "avx512", "avx2", "sse4" (or "neon", ...).
std::vector<std::string> available_isas();

std::string current_isa();

// "auto" is the best one, "baseline" the least. Unknown or unsupported names are a user error that lists the choices.
// Not while a kernel runs.
void force_isa(const std::string& name);
}  // namespace linnet
