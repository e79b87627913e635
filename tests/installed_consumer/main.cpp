// Traces a small network, prints it, and sees a shape error point at this file.
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "ir/graph.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"

int main() {
  using namespace linnet;
  Graph graph;
  const Tensor x = graph.input("x", {DType::kF32, {8, 16}});
  const Tensor weight = graph.input("weight", {DType::kF32, {16, 4}});
  graph.output("y", relu(matmul(x, weight)));
  std::puts(dump(graph).c_str());
  try {
    x + weight;
  } catch (const Error& error) {
    std::puts(error.what());
    return error.kind() == ErrorKind::kShape && std::strstr(error.what(), "main.cpp:") ? 0 : 1;
  }
  return 1;
}
