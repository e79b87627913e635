// How tests read what the program wrote: by another library than the program's own reader and writer.
#pragma once
#include <nlohmann/json.hpp>

using ParsedJson = nlohmann::json;
// Keeps keys in their order.
using OrderedJson = nlohmann::ordered_json;
