#include "nn/stage_text.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "nn/pipeline_parallel.h"
#include "passes/block_path.h"

namespace linnet {

std::string stage_text(const ParameterLayout& layout) {
  const ModelStages* stages = stages_of(layout);
  if (!stages) return "";
  std::vector<std::string> blocks;
  for (const ParameterSlot& slot : stages->all->parameters()) {
    const std::string block(block_path(slot.spec.name));
    if (!block.empty() && stages->has(slot.spec.name) && std::ranges::find(blocks, block) == blocks.end())
      blocks.push_back(block);
  }
  const StageRank& rank = stages->rank;
  std::string what = rank.is_first() ? "embeddings" : rank.is_last() ? "output layer" : "";
  if (!blocks.empty()) what = blocks.front() + (blocks.size() > 1 ? " to " + blocks.back() : "");
  const double work = stages->cut.work[static_cast<size_t>(rank.stage)];
  return "stage " + std::to_string(rank.stage) + ": " + what + ", " +
         std::to_string(static_cast<int>(std::lround(100 * work))) + "% of the work";
}

}  // namespace linnet
