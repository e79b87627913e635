// Recomputation of blocks. A block is one layer of a stack: all nodes whose module path begins with the same path up to
// its first number ("encoder.layers.3"). What a block saves for the backward pass can be dropped after the forward pass
// and computed again, from what the block reads, when the backward pass comes to the block. The result has the same
// bits: kernels are deterministic, and dropout's masks are functions of counters, not of a generator's state.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include "engine/ir/graph.h"

namespace linnet {

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

// Which block (layer of a stack) a module path is in.

// "encoder.layers.3" of "encoder.layers.3.self_attn.in_proj"; empty where the path has no number.
std::string_view block_path(std::string_view scope);

}  // namespace linnet
