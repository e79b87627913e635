#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "simulate/training_step.h"

namespace linnet {

RankLayout parse_layout(const std::string& text, int ranks) {
  RankLayout layout{0, 0, 0};
  const auto fail = [&] {
    fail_user("--parallel \"" + text + "\" is not understood; write for example data=8,tensor=4,pipeline=2, or auto");
  };
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size()), equals = text.find('=', at);
    if (equals >= end) fail();
    const std::string name = text.substr(at, equals - at);
    int* number = name == "data"       ? &layout.data
                  : name == "tensor"   ? &layout.tensor
                  : name == "pipeline" ? &layout.pipeline
                                       : nullptr;
    const char *first = text.data() + equals + 1, *last = text.data() + end;
    if (!number || *number != 0) fail();
    if (const auto [stop, error] = std::from_chars(first, last, *number);
        error != std::errc{} || stop != last || *number < 1 || *number > 1 << 15)
      fail();
    at = end + 1;
  }
  const bool tells_data = layout.data > 0;
  layout.tensor = std::max(layout.tensor, 1), layout.pipeline = std::max(layout.pipeline, 1);
  const int of_one_model = layout.tensor * layout.pipeline;
  if (!tells_data) layout.data = std::max(ranks / of_one_model, 1);
  if (layout.ranks() != ranks)
    fail_user("--parallel \"" + text + "\" does not fit " + std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") +
              ": --ranks must be " +
              (tells_data ? std::to_string(layout.ranks()) : "a multiple of " + std::to_string(of_one_model)));
  return layout;
}

std::string layout_text(const RankLayout& layout) {
  std::string text = "data=" + std::to_string(layout.data);
  if (layout.tensor > 1) text += ",tensor=" + std::to_string(layout.tensor);
  if (layout.pipeline > 1) text += ",pipeline=" + std::to_string(layout.pipeline);
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
