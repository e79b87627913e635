// The graph that an op adds its node to.
#pragma once
#include <string>

#include "base/error.h"
#include "ir/graph.h"

namespace linnet {

// The graph of the first operand. Throws Error(kShape) naming the line when that is undefined.
inline Graph* graph_of(const At& x) {
  if (!x.value.defined())
    throw Error(ErrorKind::kShape, x.where.text() + ": an undefined tensor is used as an operand");
  return x.value.graph;
}

}  // namespace linnet
