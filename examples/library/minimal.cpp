// Fits exclusive or. The README shows this file, and ctest checks that it does.
#include <linnet/linnet.h>
#include <cstdio>
using namespace linnet;

struct Net : Module {
  Linear hidden{this, "hidden", 2, 16}, out{this, "out", 16, 1};
  Tensor operator()(Tensor x) { return out(relu(hidden(x))); }
};

int main() {
  Net net;
  Learner learner(net, [&](Tracer& trace) -> Loss {  // runs once; differentiated, fused and placed in memory here
    const Tensor x = trace.input("x", {DType::kF32, {4, 2}}), y = trace.input("y", {DType::kF32, {4, 1}});
    return {.sum = sum(square(net(x) - y)), .count = trace.number(4)};
  });
  std::printf("%zu bytes, now and at the end\n", learner.memory_bytes());
  learner.set<float>("x", {0, 0, 0, 1, 1, 0, 1, 1});
  learner.set<float>("y", {0, 1, 1, 0});
  StepResult result;
  for (int step = 0; step < 500; ++step) result = learner.step(/*rate=*/0.02);
  std::printf("mean squared error %.1e\n", result.loss);
  return result.loss < 1e-3 ? 0 : 1;
}
