// Where the time of a training step goes, op by op:  step_profile CONFIG|PRESET [key=value]... [--steps N]
#include <cstdio>
#include <cstring>
#include <map>

#include "app/training_task.h"
#include "base/error.h"
#include "ir/op.h"

namespace linnet {
namespace {

struct Row {
  double seconds = 0;
  int64_t calls = 0;
};

int profile(int argc, char** argv) {
  Config config = load_config(argv[1]);
  int steps = 30;
  for (int i = 2; i < argc; ++i) {
    if (std::strcmp(argv[i], "--steps") == 0 && i + 1 < argc)
      steps = std::stoi(argv[++i]);
    else
      set_value(config, argv[i]);
  }
  validate(config);
  TrainingSetup setup(config, {});
  setup.take_memory();
  Trainer& trainer = *setup.session->trainer;
  trainer.initialize();
  std::map<std::string, Row> rows;
  double total = 0, work = 0, tokens = 0;
  for (int step = 0; step < steps + 5; ++step) {
    const Batch& batch = setup.stream->next();
    setup.session->load_batch(batch);
    float* control = setup.session->store.as<float>("control");  // learning rate, step
    control[0] = 1e-4f, control[1] = static_cast<float>(step + 1);
    std::vector<double> seconds;
    const Executor& executor = trainer.train_executor(batch.bucket);
    executor.run_timed(trainer.pool(), seconds);
    if (step < 5) continue;
    const Graph& graph = executor.plan().graph;
    tokens += static_cast<double>(batch.target_tokens);
    for (NodeId id = 0; id < graph.node_count(); ++id) {
      const Node& node = graph.node(id);
      const double flops = node_flops(graph, node);
      std::string key = node.op->name;
      if (std::strcmp(node.op->name, "matmul") == 0) key += " " + node.attrs.text();
      Row& row = rows[key];
      row.seconds += seconds[static_cast<size_t>(id)];
      ++row.calls;
      total += seconds[static_cast<size_t>(id)];
      work += flops;
    }
  }
  std::multimap<double, std::string> sorted;
  for (const auto& [key, row] : rows) sorted.emplace(-row.seconds, key);
  for (const auto& [seconds, key] : sorted)
    std::printf("%8.3f ms/step %5.1f%% %6.1f calls  %s\n", -seconds / steps * 1e3, -seconds / total * 100,
                static_cast<double>(rows[key].calls) / steps, key.c_str());
  std::printf("%8.3f ms/step, %.0f target tokens/s, products %.0f GFLOP/step, %.0f GFLOP/s overall\n",
              total / steps * 1e3, tokens / total, work / steps * 1e-9, work / total * 1e-9);
  return 0;
}

}  // namespace
}  // namespace linnet

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: step_profile CONFIG|PRESET [key=value]... [--steps N]\n"), 2;
  try {
    return linnet::profile(argc, argv);
  } catch (const linnet::Error& error) {
    return std::fprintf(stderr, "step_profile: %s\n", error.what()), linnet::exit_code(error.kind());
  }
}
