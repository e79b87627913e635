#include <algorithm>
#include <array>
#include <chrono>

#include "base/error.h"
#include "passes/passes.h"

namespace linnet {
namespace {

struct Pass {
  const char* name;
  Graph (*run)(const Graph&);
};

constexpr Pass kLowerPrecision{"lower_precision", lower_precision};
constexpr Pass kRecompute{"recompute", recompute};

// A loss before anything could come between it and its gradient. Norms take their sums before products add to them.
// Epilogues before sums: a bias belongs to its product before the product joins a sum. Views last: they fix layouts.
constexpr std::array kPasses{kLowerPrecision,
                             Pass{"fuse_loss", fuse_loss},
                             kRecompute,
                             Pass{"fuse_residual_norm", fuse_residual_norm},
                             Pass{"fuse_pool_gradient", fuse_pool_gradient},
                             Pass{"fuse_epilogue", fuse_epilogue},
                             Pass{"fuse_accumulate", fuse_accumulate},
                             Pass{"fuse_pointwise", fuse_pointwise},
                             Pass{"make_views", make_views}};

}  // namespace

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const Pass& pass : kPasses) names.emplace_back(pass.name);
  return names;
}

Graph optimize(Graph graph, const PassOptions& options, std::vector<PassReport>* report) {
  const auto names = pass_names();
  for (const std::string& name : options.off)
    if (std::find(names.begin(), names.end(), name) == names.end()) fail_user("there is no pass " + name);
  graph = remove_dead_code(graph);
  for (const Pass& pass : kPasses) {
    const auto start = std::chrono::steady_clock::now();
    const int before = graph.node_count();
    bool wanted = true;
    if (pass.run == kLowerPrecision.run) wanted = options.precision == Precision::kBf16;
    if (pass.run == kRecompute.run) wanted = options.recompute;
    const bool run = wanted && !options.off.contains(pass.name);
    std::vector<std::string> fused;
    if (run) {
      Graph next = pass.run(graph);
      if (report) fused = new_nodes(graph, next);
      graph = std::move(next);
      if (options.verify) verify(graph);
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (report) report->push_back({pass.name, run, before, graph.node_count(), seconds, fused});
  }
  return graph;
}

}  // namespace linnet
