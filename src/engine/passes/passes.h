// The rewrites of a graph, and the driver that runs them. docs/architecture.md has what each makes of a graph, in their
// order; the beginning of its file says how.
#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include "engine/ir/graph.h"
#include "engine/kernels/conv/convolution.h"
#include "engine/kernels/precision.h"
#include "engine/ops/kernel.h"

namespace linnet {

// Filters of convolutions that are packed once, before the runs of a plan whose parameters do not change: otherwise the
// kernel packs them in every run, which costs more the fewer pixels there are.
struct PackedFilters {
  std::string flat;  // the input of the graph that the filters are a part of
  int64_t offset;    // elements, in it
  ConvolutionSizes sizes;
  int64_t floats = 0;  // packed

  std::string input() const { return "packed." + flat + "." + std::to_string(offset); }  // that holds them packed
};
// The parameters that convolutions of all graphs read and can take packed, in one way. None where the backend's kernels
// do not take packed filters. For graphs as they were traced.
std::vector<PackedFilters> packable_filters(std::span<const Graph> graphs, const Backend& backend);
// Fills the inputs that pack_filters() makes. flat: the flat input; packed: 64-byte aligned.
void pack(const PackedFilters& filters, const float* flat, float* packed, ThreadPool& pool);

// The passes of optimize(). A backend is asked whether it has kernels for what a pass would make.
Graph round_shared(const Graph& graph);
Graph lower_precision(const Graph& graph, Precision precision, Precision attention);
Graph independent_rows(const Graph& graph);
Graph fuse_loss(const Graph& graph);
Graph recompute(const Graph& graph, const Backend& backend);
Graph fuse_residual_norm(const Graph& graph);
Graph fuse_batch_norm(const Graph& graph, const Backend& backend);
Graph fuse_pool_gradient(const Graph& graph, const Backend& backend);
Graph fuse_epilogue(const Graph& graph);
Graph fuse_convolution(const Graph& graph, const Backend& backend);
Graph pack_filters(const Graph& graph, std::span<const PackedFilters> filters);
Graph fuse_embedding_scale(const Graph& graph, const Backend& backend);
Graph fuse_accumulate(const Graph& graph);
Graph fuse_bias_gradient(const Graph& graph, const Backend& backend);
Graph quantize_products(const Graph& graph);
Graph fuse_quantized(const Graph& graph, const Backend& backend = cpu_backend());
Graph fuse_int8_convolution(const Graph& graph);
Graph fuse_pointwise(const Graph& graph, const Backend& backend);
Graph cast_to_storage_type(const Graph& graph, DType storage_type, const Backend& backend);
Graph make_views(const Graph& graph);

// Nodes nothing depends on disappear.
Graph remove_dead_code(const Graph& graph);
// Every fused op becomes its basic ones, but those that `keep` holds for.
Graph decompose(const Graph& graph, bool (*keep)(const OpDef& op) = nullptr);
// The nodes from `first` on are moved to where their operands have just been computed; those without operands, to their
// first reader: whoever builds a graph knows which of its nodes must not wait.
Graph run_early(const Graph& graph, NodeId first);
// The large layers of a convolutional network are computed for a few images at a time. For graphs of forward passes as
// they were traced, on the CPU; the images are the first axis of what convolutions read.
Graph group_images(const Graph& graph);

// What depends on parameters alone is computed once, before the runs of a plan whose parameters do not change: the
// factors of batch normalization, or filters that a network standardizes. What only moves numbers
// stays as it is, but for operands that a kernel wants in an order of its own (OpDef::arranged_inputs).
struct ComputedOnce {
  std::vector<Graph> first;  // each from the parameters to an output of a name that `rest` has as an input
  Graph rest;
};
// `fixed`: the inputs that do not change; `prefix`: what the names of the new inputs begin with, after "once.".
// nullopt: there is nothing of that kind. For graphs as they were traced.
std::optional<ComputedOnce> compute_once(const Graph& graph, const std::set<std::string>& fixed,
                                         const std::string& prefix);
inline constexpr const char* kComputedOnce = "once.";
inline bool is_computed_once(const std::string& input) { return input.starts_with(kComputedOnce); }

// Recomputation of blocks. A block is one layer of a stack: all nodes whose module path begins with the same path up to
// its first number ("encoder.layers.3"). What a block saves for the backward pass can be dropped after the forward pass
// and computed again, from what the block reads, when the backward pass comes to the block. The result has the same
// bits: kernels are deterministic, and dropout's masks are functions of counters, not of a generator's state.

// Which of a block's saved activations are computed again.
enum class Recomputation : uint8_t {
  kNone,
  kAttention,  // those of its attention modules
  kPart,       // all but what later blocks read and what BlockChoice::kept names
  kBlock,      // all but what later blocks read
};

struct BlockChoice {
  Recomputation what = Recomputation::kNone;
  // The block's input is computed again too, from the input of the block before it. Both are of Recomputation::kBlock.
  bool joined = false;
  // Of Recomputation::kPart: nodes of the block's forward pass, counted from 0, whose results stay saved.
  std::vector<int> kept = {};
  bool operator==(const BlockChoice&) const = default;
};

// The node that computes the loss, which is the last one of the forward pass. kNone: the graph has no loss, which is
// the output "loss_sum", or is added to the state of that name.
NodeId find_loss(const Graph& graph);

struct Block {
  std::string path;
  uint64_t kind;  // equal for blocks of equal ops and types, whatever their parameters are
};

// The blocks of a traced training graph, in the order of the forward pass. The forward pass ends at the value that is
// the graph's output, or is added to its state, "loss_sum". A graph without it has no blocks.
std::vector<Block> find_blocks(const Graph& graph);

// What may be kept of a block: a list for BlockChoice::kept, then the same and what saves most work for its bytes
// beside it, and so on. Equal for blocks of one kind.
std::vector<std::vector<int>> kept_parts(const Graph& graph, const Block& block);

// choices[i] is for block i of find_blocks(). The rewrite comes before the fusions, so that they find in the second
// computation the patterns that they find in the first.
Graph recompute_blocks(const Graph& graph, std::span<const BlockChoice> choices);

// Bytes of the values that are computed before the loss and read after it: what the forward pass saves.
size_t saved_bytes(const Graph& graph);

// An estimate of the time a graph takes, in operations: those of its products, and kOperationsPerByte for each byte
// that a node reads or writes. Only ratios of it mean something.
double estimated_work(const Graph& graph);
double node_work(const Graph& graph, const Node& node, bool with_parameters = true);

// Which block (layer of a stack) a module path is in.

// "encoder.layers.3" of "encoder.layers.3.self_attn.in_proj"; empty where the path has no number.
std::string_view block_path(std::string_view scope);

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

// A line for each pass that changed something: "fuse_epilogue: matmul+bias x 16, matmul+bias+relu x 4".
std::string fusion_report(const std::vector<PassReport>& reports);

}  // namespace linnet
