// Names of the state that plans keep in a store between runs. Further ranges of parameters and other forms of the
// optimizers add suffixes: "moment1.1", "moment2.rest" (training/trainer/range_update.h).
#pragma once
#include <string_view>

namespace linnet::state {
inline constexpr const char* kParameters = "parameters";
inline constexpr const char* kConstants = "constants";
inline constexpr const char* kAverage = "ema";  // of the parameters
inline constexpr const char* kGradient = "gradient";
inline constexpr const char* kMoment1 = "moment1";
inline constexpr const char* kMoment2 = "moment2";

// What ranks that divide the optimizer's states have a part of.
inline bool is_moment(std::string_view name) { return name.starts_with("moment"); }
inline bool is_gradient(std::string_view name) { return name.starts_with(kGradient); }
}  // namespace linnet::state
