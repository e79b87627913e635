// Which part of a flat buffer of parameters a value is: parameters are the results of a split of an input of the graph,
// reshaped before they are read.
#pragma once
#include <optional>
#include <string>

#include "engine/ir/graph.h"

namespace linnet {

struct ParameterPart {
  std::string flat;  // the input of the graph
  int64_t offset;    // elements, in it
};

// Also of a reshaped part.
std::optional<ParameterPart> parameter_part(const Graph& graph, ValueId value);

}  // namespace linnet
