#include <algorithm>

#include "distributed/simulate/training_step.h"

namespace linnet {

std::string layout_text(const RankLayout& layout) {
  std::string text = "data=" + std::to_string(layout.data);
  if (layout.tensor > 1) text += ",tensor=" + std::to_string(layout.tensor);
  if (layout.pipeline > 1)
    text += ",pipeline=" + (layout.splits_encoder ? "encoder-decoder" : std::to_string(layout.pipeline));
  if (layout.interleave > 1) text += ",interleave=" + std::to_string(layout.interleave);
  return text;
}

std::vector<RankLayout> layouts_of(int ranks, int most_tensor, int most_pipeline) {
  std::vector<RankLayout> layouts;
  for (int pipeline = 1; pipeline <= std::min(ranks, most_pipeline); ++pipeline)
    for (int tensor = 1; tensor <= std::min(ranks / pipeline, most_tensor); ++tensor)
      if (ranks % (pipeline * tensor) == 0) layouts.push_back({ranks / (pipeline * tensor), tensor, pipeline});
  return layouts;
}

}  // namespace linnet
