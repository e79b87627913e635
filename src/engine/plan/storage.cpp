#include "engine/plan/storage.h"
#include <algorithm>
#include "engine/ir/op.h"

namespace linnet {

namespace {

// The bytes of its root that a value spans (with holes, when it is strided).
Access access_of(const Graph& graph, NodeId node, ValueId id) {
  const Root root = root_of(graph, id);
  const TensorType& type = graph.value(id).type;
  int64_t last = root.offset;
  for (int axis = 0; axis < type.shape.rank(); ++axis)
    last += (std::max<int64_t>(type.shape[axis], 1) - 1) * root.strides[axis];
  const size_t size = dtype_size(type.dtype);
  return {node, static_cast<size_t>(root.offset) * size,
          type.shape.elements() ? static_cast<size_t>(last + 1) * size : static_cast<size_t>(root.offset) * size, id};
}

// A movement node whose operand and result are one memory neither reads nor writes.
bool moves_nothing(const Graph& graph, ValueId in, ValueId out) {
  const Access a = access_of(graph, 0, in), b = access_of(graph, 0, out);
  return root_of(graph, in).value == root_of(graph, out).value && (graph.value(in).view || graph.value(out).view) &&
         ((a.begin <= b.begin && b.end <= a.end) || (b.begin <= a.begin && a.end <= b.end));
}

}  // namespace

StorageMap::StorageMap(const Graph& graph, bool reuse)
    : graph_(graph),
      parent_(at(graph.value_count())),
      reads_(parent_.size()),
      writes_(parent_.size()),
      reserved_(parent_.size()) {
  for (ValueId id = 0; id < graph.value_count(); ++id) parent_[at(id)] = root_of(graph, id).value;
  collect_accesses();
  for (const StateUpdate& update : graph.updates()) reserved_[at(find(update.state))] = true;
  place_updates();
  if (reuse) overwrite_in_place();
}

ValueId StorageMap::find(ValueId id) const {
  while (parent_[at(id)] != id) id = parent_[at(id)];
  return id;
}

ValueId StorageMap::storage_of(ValueId id) const { return find(id); }

void StorageMap::collect_accesses() {
  for (NodeId id = 0; id < graph_.node_count(); ++id) {
    const Node& node = graph_.node(id);
    for (ValueId in : node.in) {
      const bool moved =
          std::all_of(node.out.begin(), node.out.end(), [&](ValueId out) { return moves_nothing(graph_, in, out); });
      if (!moved) reads_[at(find(in))].push_back(access_of(graph_, id, in));
    }
    for (ValueId out : node.out) {
      const bool moved = !node.in.empty() && std::all_of(node.in.begin(), node.in.end(),
                                                         [&](ValueId in) { return moves_nothing(graph_, in, out); });
      if (!moved) writes_[at(find(out))].push_back(access_of(graph_, id, out));
    }
  }
  // What leaves the graph is read after the last node.
  for (const GraphOutput& output : graph_.outputs())
    reads_[at(find(output.value))].push_back(access_of(graph_, graph_.node_count(), output.value));
  for (const StateUpdate& update : graph_.updates())
    reads_[at(find(update.value))].push_back(access_of(graph_, graph_.node_count(), update.value));
}

// A node may write over what it reads when the op says so and both are the same elements in the same bytes.
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

// `late` may be written into the bytes of `early` when every read of `early` comes before the write, or is by the
// writing node itself, which overwrites exactly what it reads.
bool StorageMap::may_share(ValueId early, ValueId late) const {
  for (const Access& read : reads_[at(early)])
    for (const Access& write : writes_[at(late)]) {
      if (read.begin >= write.end || write.begin >= read.end || read.node < write.node) continue;
      if (read.node > write.node || !overwrites(write.node, read, write)) return false;
    }
  // And nothing of `early` may be written once `late` has been.
  for (const Access& first : writes_[at(early)])
    for (const Access& second : writes_[at(late)])
      if (first.begin < second.end && second.begin < first.end && first.node >= second.node) return false;
  return true;
}

void StorageMap::merge(ValueId into, ValueId from) {
  parent_[at(from)] = into;
  for (auto* list : {&reads_, &writes_}) {
    auto& target = (*list)[at(into)];
    auto& source = (*list)[at(from)];
    target.insert(target.end(), source.begin(), source.end());
    source.clear();
  }
}

// The new value of a state is computed in the state's memory where possible, through every step that led to it: walks
// back from the value over nodes that may overwrite an operand.
void StorageMap::place_updates() {
  for (const StateUpdate& update : graph_.updates()) {
    ValueId current = find(update.value);
    const ValueId state = find(update.state);
    while (current != state && !is_input(current) && graph_.value(current).producer != kNone) {
      const Node& node = graph_.node(graph_.value(current).producer);
      ValueId previous = kNone;
      if (node.op->may_overwrite)
        for (size_t i = 0; i < node.in.size() && previous == kNone; ++i) {
          const ValueId operand = find(node.in[i]);
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

// Every other node that may overwrite an operand nothing reads any more does so.
void StorageMap::overwrite_in_place() {
  for (const Node& node : graph_.nodes()) {
    if (!node.op->may_overwrite) continue;
    for (size_t o = 0; o < node.out.size(); ++o)
      for (size_t i = 0; i < node.in.size(); ++i) {
        if (!node.op->may_overwrite(node, static_cast<int>(o), static_cast<int>(i))) continue;
        const ValueId early = find(node.in[i]), late = find(node.out[o]);
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
  for (const Access& write : writes_[at(storage)]) first = std::min(first, write.node);
  return first;
}

NodeId StorageMap::last(ValueId storage) const {
  NodeId last = first(storage);
  for (const Access& write : writes_[at(storage)]) last = std::max(last, write.node);
  for (const Access& read : reads_[at(storage)]) last = std::max(last, read.node);
  return last;
}

std::vector<ArenaPart> StorageMap::parts(ValueId storage) const {
  const std::vector<Access>& writes = writes_[at(storage)];
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
  const StorageMap storages(plan.graph, /*reuse=*/true);
  std::vector<ArenaTenant> tenants;
  for (ValueId id = 0; id < plan.graph.value_count(); ++id) {
    const Location& location = plan.location[static_cast<size_t>(id)];
    if (storages.storage_of(id) != id || storages.is_input(id) || location.region != arena) continue;
    const NodeId last = std::min(storages.last(id), plan.graph.node_count() - 1);
    for (const ArenaPart& part : storages.parts(id))
      tenants.push_back({id, location.offset + part.begin, part.end - part.begin, std::min(part.first, last), last});
  }
  std::ranges::stable_sort(tenants, {}, &ArenaTenant::first);
  return tenants;
}

std::vector<size_t> live_bytes(const Plan& plan, const std::vector<ArenaTenant>& tenants) {
  std::vector<int64_t> change(static_cast<size_t>(plan.graph.node_count()) + 1);
  for (const ArenaTenant& tenant : tenants) {
    change[static_cast<size_t>(tenant.first)] += static_cast<int64_t>(tenant.bytes);
    change[static_cast<size_t>(tenant.last) + 1] -= static_cast<int64_t>(tenant.bytes);
  }
  std::vector<size_t> live;
  int64_t now = 0;
  for (NodeId node = 0; node < plan.graph.node_count(); ++node)
    live.push_back(static_cast<size_t>(now += change[static_cast<size_t>(node)]));
  return live;
}

}  // namespace linnet
