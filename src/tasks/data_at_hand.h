// Whether the data of a configuration are there, and few enough to be read for a plan.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"

namespace linnet {

struct DataAtHand {
  bool read = false;
  std::string why_not;  // "No text was given": the beginning of PlanAnswer::assumption
  uint64_t bytes = 0;   // of the files that are there
  // Tokens of a text that is not read, by its size.
  int64_t assumed_tokens(const DataConfig& data) const;
};

// `name`: what `paths`, the files or folders of the data, hold: "text". Empty paths do not count. `quick`: bytes that
// are read in a moment.
DataAtHand data_at_hand(const std::string& name, const std::vector<std::string>& paths, bool exact,
                        uint64_t quick = 8 << 20);
// The text of a language model.
DataAtHand text_at_hand(const Config& config, bool exact);

}  // namespace linnet
