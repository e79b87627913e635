#include "models/nn/stage_text.h"
#include <algorithm>
#include <cmath>
#include <vector>
#include "engine/passes/recompute_blocks.h"
#include "models/nn/pipeline_parallel.h"

namespace linnet {
namespace {

std::string layers_of(const ModelStages& stages, const StageRank& stage) {
  const std::set<std::string>& parameters = stages.cut.parameters[static_cast<size_t>(stage.stage)];
  std::vector<std::string> blocks;
  for (const ParameterSlot& slot : stages.all->parameters()) {
    const std::string block(block_path(slot.spec.name));
    if (!block.empty() && parameters.contains(slot.spec.name) && std::ranges::find(blocks, block) == blocks.end())
      blocks.push_back(block);
  }
  if (blocks.empty()) return stage.is_first() ? "embeddings" : stage.is_last() ? "output layer" : "";
  return blocks.front() + (blocks.size() > 1 ? " to " + blocks.back() : "");
}

}  // namespace

std::string stage_text(const ParameterLayout& layout) {
  const ModelStages* stages = stages_of(layout);
  if (!stages) return "";
  const PipelineRank& rank = stages->rank;
  std::string numbers, layers;
  double work = 0;
  for (int chunk = 0; chunk < rank.chunks; ++chunk) {
    const StageRank stage = rank.stage(chunk);
    const bool is_last = chunk + 1 == rank.chunks;
    numbers += (chunk == 0 ? " " : is_last ? " and " : ", ") + std::to_string(stage.stage);
    layers += (chunk > 0 ? "; " : "") + layers_of(*stages, stage);
    work += stages->cut.work[static_cast<size_t>(stage.stage)];
  }
  return (rank.chunks > 1 ? "stages" : "stage") + numbers + ": " + layers + ", " +
         std::to_string(static_cast<int>(std::lround(100 * work))) + "% of the work";
}

}  // namespace linnet
