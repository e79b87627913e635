// Fits exclusive or. The README shows this file, and ctest checks that it does.
#include <algorithm>
#include <cstdio>

#include "nn/layers.h"
#include "ops/movement/movement.h"
#include "ops/reduce/reduce.h"
#include "train/trainer.h"
using namespace linnet;

struct Net : Module {
  Linear hidden{this, "hidden", 2, 16}, out{this, "out", 16, 1};
  Tensor operator()(Tensor x) { return out(relu(hidden(x))); }
};

int main() {
  Net net;
  const ParameterLayout layout(net);
  Store store;  // all memory: regions, and where in them each input of a graph lies
  store.bind("x", {store.add_region("x", MemoryKind::kBatch, 32), 0}, 32);
  store.bind("y", {store.add_region("y", MemoryKind::kBatch, 16), 0}, 16);
  const RegionId arena = store.add_region("arena", MemoryKind::kActivations, 0);
  const RegionId workspace = store.add_region("workspace", MemoryKind::kWorkspace, 0);
  Trainer trainer(layout, store, {arena, workspace}, {});
  const int shape = trainer.add_shape([&](Trace& trace) -> Loss {  // recorded, differentiated and planned here
    const Tensor x = trace.graph().input("x", {DType::kF32, {4, 2}});
    const Tensor y = trace.graph().input("y", {DType::kF32, {4, 1}});
    return {sum_to(square(net(x) - y), {}), fill(trace.graph(), {DType::kF32, {}}, 4)};
  });
  store.allocate(), trainer.bind(), trainer.initialize();
  const float inputs[] = {0, 0, 0, 1, 1, 0, 1, 1}, targets[] = {0, 1, 1, 0};
  std::ranges::copy(inputs, store.as<float>("x")), std::ranges::copy(targets, store.as<float>("y"));
  StepReport report{};
  for (int64_t step = 1; step <= 500; ++step) report = trainer.step(shape, /*learning_rate=*/0.02, step);
  std::printf("%zu bytes planned; mean squared error %.1e after 500 steps\n", store.total_bytes(), report.loss);
  return report.loss < 1e-3 ? 0 : 1;
}
