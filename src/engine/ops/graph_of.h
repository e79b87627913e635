// The graph that an op adds its node to.
#pragma once

#include "base/error.h"
#include "engine/ir/graph.h"

namespace linnet {

// The graph of the first operand. Throws Error(kShape) naming the line when that is undefined or its graph is gone.
inline Graph* graph_of(const At& x) {
  if (!x.value.defined())
    throw Error(ErrorKind::kShape, x.where.text() + ": an undefined tensor is used as an operand");
  if (x.value.stamp != 0 && !GraphStamp::is_alive(x.value.stamp))
    throw Error(ErrorKind::kShape, x.where.text() + ": an operand is a tensor whose recording has ended");
  return x.value.graph;
}

}  // namespace linnet
