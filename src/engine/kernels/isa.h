// Which instruction set the kernels run on. All of them are compiled into the library; the best one the processor has
// is taken unless one is forced (to reproduce another machine's results to the bit, or to test).
#pragma once
#include <string>
#include <vector>

namespace linnet {

// The instruction sets of this processor, best first: "avx512", "avx2", "sse4" (or "neon", ...).
std::vector<std::string> available_isas();

std::string current_isa();

// "auto" is the best one, "baseline" the least. An unknown or unsupported name is a user error that lists the choices.
// Not while a kernel runs.
void force_isa(const std::string& name);

}  // namespace linnet
