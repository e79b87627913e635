// A model's answer to one input, for `linnet predict`.
#pragma once
#include <span>
#include <string>
#include <vector>
#include "base/json.h"

namespace linnet {
struct Answer {
  std::vector<std::string> cells;  // of an output line, before the input
  Json json = Json::object();      // of a JSON line, after the input
};

// Six decimals.
std::string cell(double number);
// The `top` likeliest classes with probabilities. With top > 1, "top" lists them in JSON.
Answer class_answer(std::span<const double> probabilities, const std::vector<std::string>& classes, int64_t top);
std::vector<std::string> class_heading(int64_t top);
}  // namespace linnet
