// Writes the kernels of pointwise_cases() as one file for the emulation: generate_pointwise FILE
#include <cstdio>
#include <fstream>
#include "cuda_emulation/pointwise_cases.h"

int main(int argc, char** argv) {
  using namespace linnet;
  if (argc != 2) return std::fprintf(stderr, "usage: %s FILE\n", argv[0]), 2;
  std::ofstream file(argv[1]);
  file << "// By generate_pointwise.\n#include \"cuda_emulation/pointwise_cases.h\"\n"
       << "#include \"engine/kernels/cuda/launch.cuh\"\n\nnamespace linnet {\n"
       << pointwise_prelude();
  std::string list;
  for (const testing::PointwiseCase& one : testing::pointwise_cases()) {
    file << pointwise_kernel(one.source(), one.name);
    list += "    " + one.name + ",\n";
  }
  file << "\nstd::span<const testing::PointwiseFunction> testing::generated_pointwise() {\n"
       << "  static constexpr testing::PointwiseFunction kAll[] = {\n"
       << list << "  };\n  return kAll;\n}\n\n}  // namespace linnet\n";
  return file.good() ? 0 : 1;
}
