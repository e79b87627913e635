#include <algorithm>
#include <functional>
#include "base/numbers.h"
#include "engine/ir/op.h"
#include "engine/plan/plan.h"

namespace linnet {
namespace {
// The bytes of its root that a value spans, with holes if it is strided.
Access access_of(const Graph& graph, NodeId node, ValueId id) {
  const Root root = root_of(graph, id);
  const TensorType& type = graph.value(id).type;
  const size_t size = dtype_size(type.dtype), begin = static_cast<size_t>(root.offset) * size;
  return {node, begin, begin + static_cast<size_t>(strided_extent(type.shape, root.strides)) * size, id};
}

// A movement node whose operand and result share memory neither reads nor writes.
bool moves_nothing(const Graph& graph, ValueId in, ValueId out) {
  const Access a = access_of(graph, 0, in), b = access_of(graph, 0, out);
  return root_of(graph, in).value == root_of(graph, out).value && (graph.value(in).view || graph.value(out).view) &&
         ((a.begin <= b.begin && b.end <= a.end) || (b.begin <= a.begin && a.end <= b.end));
}
}  // namespace

StorageMap::StorageMap(const Graph& graph)
    : graph_(graph), parent_(graph.value_count()), reads_(parent_.size()), writes_(parent_.size()) {
  for (ValueId id = 0; id < graph.value_count(); ++id) parent_[id] = root_of(graph, id).value;
  collect_accesses();
  place_updates();
  overwrite_in_place();
}

ValueId StorageMap::storage_of(ValueId id) const {
  while (parent_[id] != id) id = parent_[id];
  return id;
}

void StorageMap::collect_accesses() {
  for (NodeId id = 0; id < graph_.node_count(); ++id) {
    const Node& node = graph_.node(id);
    for (ValueId in : node.in) {
      const bool moved = std::ranges::all_of(node.out, [&](ValueId out) { return moves_nothing(graph_, in, out); });
      if (!moved) reads_[storage_of(in)].push_back(access_of(graph_, id, in));
    }
    for (ValueId out : node.out) {
      const bool moved = std::ranges::all_of(node.in, [&](ValueId in) { return moves_nothing(graph_, in, out); });
      if (!moved || node.in.empty()) writes_[storage_of(out)].push_back(access_of(graph_, id, out));
    }
  }
  // Results of the graph are read after the last node.
  for (const ValueId result : results_of(graph_))
    reads_[storage_of(result)].push_back(access_of(graph_, graph_.node_count(), result));
}

// A node may overwrite an operand if the op allows it and both are the same elements in the same bytes.
bool StorageMap::overwrites(NodeId id, const Access& read, const Access& write) const {
  if (id >= graph_.node_count()) return false;
  const Node& node = graph_.node(id);
  if (!node.op->may_overwrite || read.begin != write.begin || read.end != write.end) return false;
  if (graph_.value(read.value).type.dtype != graph_.value(write.value).type.dtype) return false;
  for (size_t i = 0; i < node.in.size(); ++i)
    for (size_t o = 0; o < node.out.size(); ++o)
      if (node.in[i] == read.value && node.out[o] == write.value &&
          node.op->may_overwrite(node, static_cast<int>(o), static_cast<int>(i)) &&
          std::count(node.in.begin(), node.in.end(), read.value) == 1)
        return true;
  return false;
}

// `late` may use the bytes of `early` if every read of `early` comes before the write, or is by the writing node
// itself, which overwrites exactly what it reads.
bool StorageMap::may_share(ValueId early, ValueId late) const {
  for (const Access& read : reads_[early])
    for (const Access& write : writes_[late]) {
      if (read.begin >= write.end || write.begin >= read.end || read.node < write.node) continue;
      if (read.node > write.node || !overwrites(write.node, read, write)) return false;
    }
  // Nor may `early` be written after `late`.
  for (const Access& first : writes_[early])
    for (const Access& second : writes_[late])
      if (first.begin < second.end && second.begin < first.end && first.node >= second.node) return false;
  return true;
}

void StorageMap::merge(ValueId into, ValueId from) {
  parent_[from] = into;
  for (auto* list : {&reads_, &writes_}) {
    auto& target = (*list)[into];
    auto& source = (*list)[from];
    target.insert(target.end(), source.begin(), source.end());
    source.clear();
  }
}

// Computes a state's new value in the state's memory if possible: walks back over nodes that may overwrite an operand.
void StorageMap::place_updates() {
  for (const StateUpdate& update : graph_.updates()) {
    ValueId current = storage_of(update.value);
    const ValueId state = storage_of(update.state);
    while (current != state && !is_input(current) && graph_.value(current).producer != kNone) {
      const Node& node = graph_.node(graph_.value(current).producer);
      ValueId previous = kNone;
      if (node.op->may_overwrite)
        for (size_t i = 0; i < node.in.size() && previous == kNone; ++i) {
          const ValueId operand = storage_of(node.in[i]);
          if (node.op->may_overwrite(node, graph_.value(current).output, static_cast<int>(i)) && operand != state &&
              !is_input(operand) && graph_.value(operand).type.bytes() == graph_.value(current).type.bytes() &&
              may_share(operand, current))
            previous = operand;
        }
      if (previous == kNone) break;
      merge(previous, current);
      current = previous;
    }
    const bool fits = graph_.value(current).type.bytes() == graph_.value(state).type.bytes() && !is_input(current);
    // The value must be the whole of its storage, or it would not lie where the state does.
    const Root root = root_of(graph_, update.value);
    const bool whole = graph_.value(root.value).type.bytes() == graph_.value(update.value).type.bytes();
    if (current == state) continue;
    if (fits && whole && may_share(state, current)) merge(state, current);
    else copies_.push_back(update);
  }
}

// Lets every other node overwrite an operand that nothing reads later.
void StorageMap::overwrite_in_place() {
  for (const Node& node : graph_.nodes()) {
    if (!node.op->may_overwrite) continue;
    for (size_t o = 0; o < node.out.size(); ++o)
      for (size_t i = 0; i < node.in.size(); ++i) {
        if (!node.op->may_overwrite(node, static_cast<int>(o), static_cast<int>(i))) continue;
        const ValueId early = storage_of(node.in[i]), late = storage_of(node.out[o]);
        if (early == late || is_input(early) || is_input(late)) continue;
        const bool roots =
            root_of(graph_, node.in[i]).value == node.in[i] && root_of(graph_, node.out[o]).value == node.out[o];
        if (roots && graph_.value(early).type.bytes() == graph_.value(late).type.bytes() && may_share(early, late)) {
          merge(early, late);
          break;
        }
      }
  }
}

NodeId StorageMap::first(ValueId storage) const {
  NodeId first = graph_.node_count();
  for (const Access& write : writes_[storage]) first = std::min(first, write.node);
  return first;
}

NodeId StorageMap::last(ValueId storage) const {
  return std::max({first(storage), max_of<NodeId>(writes_[storage], &Access::node),
      max_of<NodeId>(reads_[storage], &Access::node)});
}

std::vector<ArenaPart> StorageMap::parts(ValueId storage) const {
  const std::vector<Access>& writes = writes_[storage];
  std::vector<size_t> cuts{0, graph_.value(storage).type.bytes()};
  for (const Access& write : writes) cuts.insert(cuts.end(), {write.begin, write.end});
  std::sort(cuts.begin(), cuts.end());
  std::vector<ArenaPart> parts;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    if (cuts[i] == cuts[i + 1]) continue;
    NodeId first_write = graph_.node_count();
    for (const Access& write : writes)
      if (write.begin <= cuts[i] && cuts[i + 1] <= write.end) first_write = std::min(first_write, write.node);
    if (first_write == graph_.node_count()) first_write = first(storage);  // what nobody writes
    if (!parts.empty() && parts.back().first == first_write) parts.back().end = cuts[i + 1];
    else parts.push_back({cuts[i], cuts[i + 1], first_write});
  }
  return parts;
}

std::vector<ArenaTenant> arena_tenants(const Plan& plan, RegionId arena) {
  const StorageMap storages(plan.graph);
  std::vector<ArenaTenant> tenants;
  for (ValueId id = 0; id < plan.graph.value_count(); ++id) {
    const Location& location = plan.location[id];
    if (storages.storage_of(id) != id || storages.is_input(id) || location.region != arena) continue;
    const NodeId last = std::min(storages.last(id), plan.graph.node_count() - 1);
    for (const ArenaPart& part : storages.parts(id))
      tenants.push_back({id, location.offset + part.begin, part.end - part.begin, std::min(part.first, last), last});
  }
  std::ranges::stable_sort(tenants, {}, &ArenaTenant::first);
  return tenants;
}

std::vector<size_t> live_bytes(const std::vector<ArenaTenant>& tenants, NodeId nodes) {
  std::vector<int64_t> change(static_cast<size_t>(nodes) + 1);
  for (const ArenaTenant& tenant : tenants) {
    change[tenant.first] += static_cast<int64_t>(tenant.bytes);
    change[static_cast<size_t>(tenant.last) + 1] -= static_cast<int64_t>(tenant.bytes);
  }
  std::vector<size_t> live;
  int64_t now = 0;
  for (NodeId node = 0; node < nodes; ++node) live.push_back(now += change[node]);
  return live;
}

namespace {
constexpr size_t kAlignment = 256;  // of a kernel's workspace on a GPU (cuBLASLt); a cache line has 64

// A block for the search: parts in whole cache lines, each alive from its own first node to the common last.
struct Placed {
  std::vector<ArenaPart> parts;
  int32_t first, last;
  size_t offset = 0;
};

// A line shared by two parts belongs to the earlier one.
Placed in_lines(const ArenaBlock& block) {
  Placed placed{{}, block.first, block.last};
  std::vector<ArenaPart>& lines = placed.parts;
  if (block.parts.empty()) lines.push_back({0, round_up(block.bytes, kAlignment), block.first});
  for (ArenaPart part : block.parts) {
    part.begin = part.begin / kAlignment * kAlignment;
    part.end = round_up(part.end, kAlignment);
    while (!lines.empty() && lines.back().end > part.begin && part.first < lines.back().first) {
      lines.back().end = part.begin;
      if (lines.back().begin == lines.back().end) lines.pop_back();
    }
    if (!lines.empty()) part.begin = std::max(part.begin, lines.back().end);
    if (part.begin < part.end) lines.push_back(part);
  }
  if (lines.empty()) lines.push_back({0, 0, block.first});
  return placed;
}

// Offsets between `after` and `before` (exclusive) are not allowed, because of a part of a neighbor.
struct Forbidden {
  int64_t after, before;
};

void forbid(const Placed& neighbor, const Placed& block, std::vector<Forbidden>& forbidden) {
  if (neighbor.last < block.first || block.last < neighbor.first) return;
  for (const ArenaPart& theirs : neighbor.parts)
    for (const ArenaPart& ours : block.parts) {
      if (neighbor.last < ours.first || block.last < theirs.first) continue;
      const auto at = static_cast<int64_t>(neighbor.offset);
      forbidden.push_back({at + static_cast<int64_t>(theirs.begin) - static_cast<int64_t>(ours.end),
          at + static_cast<int64_t>(theirs.end) - static_cast<int64_t>(ours.begin)});
    }
}

// The lowest allowed offset in the tightest gap.
size_t tightest(std::vector<Forbidden>& forbidden) {
  std::sort(forbidden.begin(), forbidden.end(), [](auto& a, auto& b) { return a.after < b.after; });
  int64_t free = 0, best = -1, best_slack = INT64_MAX;
  for (const Forbidden& range : forbidden) {
    if (range.after >= free && range.after - free < best_slack) {
      best = free;
      best_slack = range.after - free;
    }
    free = std::max(free, range.before);
  }
  return static_cast<size_t>(best < 0 ? free : best);
}

size_t most_alive(const std::vector<Placed>& blocks) {
  std::vector<ArenaTenant> tenants;
  for (const Placed& block : blocks)
    for (const ArenaPart& part : block.parts)
      tenants.push_back({kNone, part.begin, part.end - part.begin, part.first, block.last});
  return max_of<size_t>(live_bytes(tenants, max_of<NodeId>(blocks, &Placed::last) + 1));
}

struct Placement {
  std::vector<size_t> order, offsets;
  size_t bytes = 0;
};

class Placer {
 public:
  explicit Placer(const std::vector<ArenaBlock>& blocks) : all_(mapped(blocks, in_lines)), bound_(most_alive(all_)) {}

  const Placement& run() {
    const auto bytes = [&](size_t i) { return all_[i].parts.back().end; };
    const auto lifetime = [&](size_t i) { return static_cast<size_t>(all_[i].last - all_[i].first) + 1; };
    try_order(by_descending(bytes));
    // If gradients are one block, a layer's activations fit only into the bytes of the layers below, so the lowest
    // layer, whose activations live longest, chooses first.
    if (!is_least()) try_order(by_descending(lifetime));
    if (!is_least()) try_order(by_descending([&](size_t i) { return bytes(i) * lifetime(i); }));
    for (int round = 0; round < kRounds && !is_least(); ++round)
      if (!try_order(with_highest_first())) break;
    return best_;
  }
  size_t bound() const { return bound_; }

 private:
  static constexpr int kRounds = 12;

  bool is_least() const { return best_.bytes == bound_; }

  // Blocks with parts come first, since others lie in them.
  std::vector<size_t> by_descending(auto&& key) const {
    std::vector<size_t> order = numbers_below<size_t>(all_.size());
    std::ranges::stable_sort(
        order, std::greater{}, [&](size_t i) { return std::pair(all_[i].parts.size() > 1, key(i)); });
    return order;
  }

  // Moves the block at the arena's end to the front, behind those with parts.
  std::vector<size_t> with_highest_first() const {
    std::vector<size_t> order = best_.order;
    const auto highest =
        std::ranges::max_element(order, {}, [&](size_t i) { return best_.offsets[i] + all_[i].parts.back().end; });
    const auto first = std::ranges::find_if(order, [&](size_t i) { return all_[i].parts.size() == 1; });
    if (first < highest) std::rotate(first, highest, highest + 1);
    return order;
  }

  // Returns whether the arena becomes smaller.
  bool try_order(std::vector<size_t> order) {
    Placement made{std::move(order), std::vector<size_t>(all_.size())};
    for (auto i = made.order.begin(); i != made.order.end(); ++i) {
      forbidden_.clear();
      for (auto j = made.order.begin(); j != i; ++j) forbid(all_[*j], all_[*i], forbidden_);
      made.offsets[*i] = all_[*i].offset = tightest(forbidden_);
      made.bytes = std::max(made.bytes, all_[*i].offset + all_[*i].parts.back().end);
    }
    const bool smaller = best_.order.empty() || made.bytes < best_.bytes;
    if (smaller) best_ = std::move(made);
    return smaller;
  }

  std::vector<Placed> all_;
  const size_t bound_;
  std::vector<Forbidden> forbidden_;
  Placement best_;
};
}  // namespace

size_t most_alive(const std::vector<ArenaBlock>& blocks) { return most_alive(mapped(blocks, in_lines)); }

ArenaSize place_blocks(std::vector<ArenaBlock>& blocks) {
  Placer placer(blocks);
  const Placement& placed = placer.run();
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i].offset = placed.offsets[i];
  return {placed.bytes, placer.bound()};
}
}  // namespace linnet
