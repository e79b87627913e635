// The rewrites of a graph, and the driver that runs them. See docs/architecture.md for the order.
#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>
#include "engine/ir/graph.h"
#include "engine/kernels/precision.h"
#include "engine/ops/kernel.h"
#include "engine/passes/pack_filters.h"
#include "engine/passes/recompute_blocks.h"

namespace linnet {

// Every fused op becomes its basic ones, but those that `keep` holds for.
Graph decompose(const Graph& graph, bool (*keep)(const OpDef& op) = nullptr);
// Elementwise results of the forward pass that have several readers are rounded to bf16, as storing them in bf16 does:
// then their bits depend neither on which of their readers they are fused with nor on whether they are computed again.
Graph round_shared(const Graph& graph);
// Every product computes in this precision (engine/kernels/precision.h), those of attention in the other.
Graph lower_precision(const Graph& graph, Precision precision, Precision attention);
// A row of a product has the same bits whatever the number of rows is: decoding graphs, whose rows are requests.
Graph independent_rows(const Graph& graph);
// Nodes nothing depends on disappear.
Graph remove_dead_code(const Graph& graph);
// The nodes from `first` on are moved to where their operands have just been computed; those without operands, to their
// first reader. No pass of the list below: who
// builds a graph knows which of its nodes must not wait.
Graph run_early(const Graph& graph, NodeId first);
// A linear cross-entropy and its gradient become one node that computes the logits once.
Graph fuse_loss(const Graph& graph);
// Cheap results of the forward pass are computed a second time for the backward pass instead of kept, where they are
// large enough for the backend's device.
Graph recompute(const Graph& graph, const Backend& backend);
// [dropout +] add + layer_norm becomes residual_norm, and so does what they are backward.
Graph fuse_residual_norm(const Graph& graph);
// The gradient of a linear layer's input is computed by the pooled convolution's gradient that reads it.
// `backend` is asked whether it has a kernel for it.
Graph fuse_pool_gradient(const Graph& graph, const Backend& backend);
// A bias, an activation function or the multiplication by its derivative becomes the epilogue of a matmul.
Graph fuse_epilogue(const Graph& graph);
// A factor and a summand for each filter, a residual sum and ReLU become the epilogue of a convolution, where the
// backend has a kernel for it.
Graph fuse_convolution(const Graph& graph, const Backend& backend);
// Convolutions whose filters are quantized to int8 multiply bytes. Where the scale of what they read is known
// beforehand (static int8), one that is read by others of them alone, or added by them, writes the codes that they
// would round its result to: its floats are never stored.
Graph fuse_int8_convolution(const Graph& graph);
// batch_norm [+ add] + relu becomes one batch_norm, and relu's gradient a part of the norm's, where the backend has a
// kernel for it.
Graph fuse_batch_norm(const Graph& graph, const Backend& backend);
// sum + matmul becomes a matmul that adds to the sum in place; so do embedding gradients.
Graph fuse_accumulate(const Graph& graph);
// The sum for a bias's gradient becomes a second result of the product for the weight's gradient, where the backend has
// a kernel for it.
Graph fuse_bias_gradient(const Graph& graph, const Backend& backend);
// The number that lookups are multiplied by becomes a part of the table's gradient, where the backend has a kernel for
// it.
Graph fuse_embedding_scale(const Graph& graph, const Backend& backend);
// Products with quantized weights and lookups in quantized tables read them as they are.
Graph fuse_quantized(const Graph& graph, const Backend& backend = cpu_backend());
// Training in int8: linear layers' products and those of their inputs' gradients round both operands to 8 bits.
Graph quantize_products(const Graph& graph);
// Chains of elementwise ops become one.
Graph fuse_pointwise(const Graph& graph, const Backend& backend);
// Activations are written in a shorter type, as far as the backend has kernels for it.
Graph cast_to_storage_type(const Graph& graph, DType storage_type, const Backend& backend);
// reshape, split and concat become views where the ops around them can read and write with strides.
Graph make_views(const Graph& graph);

struct PassReport {
  std::string name;
  bool ran;
  int nodes_before, nodes_after;
  double seconds;
  std::vector<std::string> fused;  // what there is since the pass, counted: "matmul+bias+relu x 4"
};

struct PassOptions {
  std::set<std::string> off;                          // names of passes to leave out (pass_names())
  Precision precision = Precision::kF32;              // not kF32: lower_precision runs first
  std::optional<Precision> attention_precision = {};  // of attention's products, where it is another
  bool int8 = false;                                  // see quantize_products(); `precision` is that of all else
  std::optional<DType> storage_type = {};             // of activations; see cast_to_storage_type()
  bool recompute = false;                             // for graphs with a backward pass: see recompute()
  std::vector<BlockChoice> blocks = {};               // see recompute_blocks(); empty: nothing of any block
  std::vector<PackedFilters> filters = {};            // see pack_filters()
  bool independent_rows = false;                      // see independent_rows()
  const Backend* backend = &cpu_backend();            // whose kernels the plan will use
  bool verify = true;
};

// The passes every plan goes through, in order. Throws Error(kUser) for a name in `off` that is no pass.
Graph optimize(Graph graph, const PassOptions& options = {}, std::vector<PassReport>* report = nullptr);
std::vector<std::string> pass_names();

// Nodes of `after`, counted by what they do, beyond those of `before`; for elementwise ones, their functions. Where
// values became views: how many are.
std::vector<std::string> new_nodes(const Graph& before, const Graph& after);
// A line for each pass that changed something: "fuse_epilogue: matmul+bias x 16, matmul+bias+relu x 4".
std::string fusion_report(const std::vector<PassReport>& reports);

}  // namespace linnet
