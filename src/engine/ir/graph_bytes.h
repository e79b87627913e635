// A graph as bytes, with attributes, views, module paths and source lines, so that another process can run it.
#pragma once
#include "engine/ir/bytes.h"
#include "engine/ir/graph.h"

namespace linnet {

using FindOp = const OpDef* (*)(std::string_view name);  // nullptr for an unknown name

void write_graph(const Graph& graph, ByteWriter& bytes);
// The same graph, value ids included. Throws Error(kUser) for bytes that write_graph() did not make: an unknown op,
// shapes that do not fit, a view beyond its base.
Graph read_graph(ByteReader& bytes, FindOp find_op);

}  // namespace linnet
