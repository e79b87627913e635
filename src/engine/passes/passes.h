// The rewrites of a graph, and their driver. docs/architecture.md shows what each rewrite makes of a graph, in order.
// The comment at the beginning of its source file says how.
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
// Filters packed once for plans with constant parameters. Packing in every run is costly if pixels are few.
struct PackedFilters {
  std::string flat;  // the input of the graph that the filters are a part of
  int64_t offset;    // elements, in it
  ConvolutionSizes sizes;
  int64_t floats = 0;  // packed

  std::string input() const { return "packed." + flat + "." + std::to_string(offset); }  // that holds them packed
};
// Parameters that all graphs' convolutions can read packed alike. None if the backend packs none. For traced graphs.
std::vector<PackedFilters> packable_filters(std::span<const Graph> graphs, const Backend& backend);
// Fills the inputs that pack_filters() makes from the flat input; `packed` is 64-byte aligned.
void pack(const PackedFilters& filters, const float* flat, float* packed, ThreadPool& pool);

// The passes of optimize(). A pass asks the backend whether it has kernels for a result.
Graph round_shared(const Graph& graph);
Graph lower_precision(const Graph& graph, Precision precision, Precision attention, bool as_stored = false);
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
Graph join_norm_sums(const Graph& graph, const Backend& backend);
Graph group_weight_gradients(const Graph& graph, const Backend& backend);
Graph quantize_products(const Graph& graph);
Graph fuse_quantized(const Graph& graph, const Backend& backend);
Graph fuse_int8_convolution(const Graph& graph);
Graph fuse_pointwise(const Graph& graph, const Backend& backend);
Graph fuse_sums(const Graph& graph, const Backend& backend);
Graph cast_to_storage_type(const Graph& graph, DType storage_type, const Backend& backend);
Graph make_views(const Graph& graph);

Graph remove_dead_code(const Graph& graph);  // removes nodes that nothing depends on
// Replaces fused ops by basic ones, except those with keep(op).
Graph decompose(const Graph& graph, bool (*keep)(const OpDef& op) = nullptr);
// Moves the nodes from `first` on to directly after their last operand, or before their first reader if they have none.
// The graph's author knows which nodes must not be late.
Graph run_early(const Graph& graph, NodeId first);
// Computes the large layers of a convolutional network for a few images at a time. For graphs of forward passes as
// traced, on the CPU; the images are the first axis of the convolutions' operands.
Graph group_images(const Graph& graph);

// Computes what depends on parameters alone once, before the runs of a plan with constant parameters: the factors of
// batch normalization, or filters that a network standardizes. Nodes that only move numbers stay, except for operands
// that a kernel wants in its own order (OpDef::arranged_inputs).
struct ComputedOnce {
  std::vector<Graph> first;  // each from the parameters to an output of a name that `rest` has as an input
  Graph rest;
};
// `fixed`: inputs that do not change; `prefix`: begins new names after "once.". nullopt: none. Traced graphs only.
std::optional<ComputedOnce> compute_once(
    const Graph& graph, const std::set<std::string>& fixed, const std::string& prefix);
inline constexpr const char* kComputedOnce = "once.";
inline bool is_computed_once(const std::string& input) { return input.starts_with(kComputedOnce); }

// Recomputation of blocks. A block is a layer of a stack: all nodes with the same module path up to its first number
// ("encoder.layers.3"). A block's saved activations can be dropped after the forward pass and recomputed from the
// block's input in the backward pass. The bits stay the same: kernels are deterministic, and dropout's masks are
// functions of counters, not of a generator's state.

// Which of a block's saved activations are recomputed.
enum class Recomputation : uint8_t {
  kNone,
  kAttention,  // those of its attention modules
  kPart,       // all but what later blocks read and what BlockChoice::kept names
  kBlock,      // all but what later blocks read
};

struct BlockChoice {
  Recomputation what = Recomputation::kNone;
  // The block's input is recomputed too, from the previous block's input. Both blocks are of Recomputation::kBlock.
  bool joined = false;
  // For Recomputation::kPart: nodes of the block's forward pass, counted from 0, whose results stay saved.
  std::vector<int> kept = {};
  bool operator==(const BlockChoice&) const = default;
};

// The forward pass's last node: it computes "loss_sum", an output or what a state is increased by. kNone: no loss.
NodeId find_loss(const Graph& graph);

struct Block {
  std::string path;
  uint64_t kind;  // equal for blocks of equal ops and types, whatever their parameters are
};

// Blocks of a traced training graph in forward order; the forward pass ends at find_loss(). None without a loss.
std::vector<Block> find_blocks(const Graph& graph);

// Lists for BlockChoice::kept: each adds the result that saves most work for its bytes. Equal for blocks of one kind.
std::vector<std::vector<int>> kept_parts(const Graph& graph, const Block& block);

// choices[i] is for block i of find_blocks(). Runs before the fusions, so that both computations are fused alike.
Graph recompute_blocks(const Graph& graph, std::span<const BlockChoice> choices);

// Bytes that the forward pass saves: values computed before the loss and read after it.
size_t saved_bytes(const Graph& graph);

// An estimate of a graph's time in operations: those of its products, and kOperationsPerByte for each byte that a node
// reads or writes. Only ratios of it are meaningful.
double estimated_work(const Graph& graph);
double node_work(const Graph& graph, const Node& node, bool with_parameters = true);

// "encoder.layers.3" of "encoder.layers.3.self_attn.in_proj"; empty for a path without a number.
std::string_view block_path(std::string_view scope);

struct PassReport {  // of a pass that ran
  std::string name;
  std::vector<std::string> fused;  // what there is since the pass, counted: "matmul+bias+relu x 4"
};

struct PassOptions {
  std::set<std::string> off;                          // names of passes to leave out (pass_names())
  Precision precision = Precision::kF32;              // not kF32: lower_precision runs first
  std::optional<Precision> attention_precision = {};  // of attention's products, where it is another
  bool as_stored = false;                   // products by weights in bf16 are in bf16, whatever `precision` is
  bool int8 = false;                        // see quantize_products(); `precision` is that of all else
  std::optional<DType> storage_type = {};   // of activations; see cast_to_storage_type()
  bool recompute = false;                   // for graphs with a backward pass: see recompute()
  std::vector<BlockChoice> blocks = {};     // see recompute_blocks(); empty: nothing of any block
  std::vector<PackedFilters> filters = {};  // see pack_filters()
  bool independent_rows = false;            // see independent_rows()
  const Backend* backend = &cpu_backend();  // whose kernels the plan will use
  bool verify = true;
};

// The passes of every plan, in order. Throws Error(kUser) for an unknown name in `off`.
Graph optimize(Graph graph, const PassOptions& options = {}, std::vector<PassReport>* report = nullptr);
std::vector<std::string> pass_names();

// A line for each pass that changed something: "fuse_epilogue: matmul+bias x 16, matmul+bias+relu x 4".
std::string fusion_report(const std::vector<PassReport>& reports);

// Appends d(loss)/d(w) for every w in `wrt` as nodes; zeros if the loss does not depend on w. `loss` is a scalar. Each
// gradient node has the module path of its forward node. Throws Error(kShape) if an op on the way has no gradient.
std::vector<Tensor> gradients(Tensor loss, std::span<const Tensor> wrt);

// Adds what explains a trained model to its graph: attention probabilities, and the share of each token in a score.
struct TracedAttention {
  std::string output;  // of the graph: f32 [B, heads, queries, keys], rows that sum to 1
  std::string module;  // "layers.0.self_attn"
  // The last sequence that queries and keys were computed from: a decoder's queries depend on the source too, while the
  // keys of its attention to the source depend on nothing else.
  size_t queries, keys;
};

// Adds an output for each attention in the graph, in node order. `sequences`: the graph's inputs of token ids, an
// encoder's before a decoder's. Attention whose queries or keys depend on none of them is left out.
std::vector<TracedAttention> add_attention_maps(Graph& graph, std::span<const std::string> sequences);

// How much each token of a model's input adds to a score, by integrated gradients (Sundararajan, Taly & Yan 2017):
//
//   attribution[t] = (e[t] - m) . mean over alpha in (0, 1) of d score / d e[t]  at  m + alpha (e - m)
//
// e[t] is the row of the embedding table for token t, m the mean of all rows. The attributions add up to the score of
// the text minus the score of a text whose embeddings are all m. The path does not start at zero, as models that begin
// with an RMS norm (Llama, T5) are discontinuous there.
//
// Returns a graph that computes the score at a point of that path for each row of the batch, and the products whose
// means over alpha are the attributions. It has
//
//   one more input: "alpha" f32 [B, 1, 1], in [0, 1]
//   an output "attribution.NAME" f32 [B, T] for each input NAME of `sequences`, token ids i32 [B, T]
//
// `score` is a scalar, a sum over the rows of the batch. Internal error if no table is looked up by a sequence.
Graph attribute_tokens(Tensor score, std::span<const std::string> sequences);
}  // namespace linnet
