// The plan's proof: its nodes are replayed on a map of bytes that remembers which value each byte holds. It knows
// nothing of how the plan was made, only what a read must find.
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "ir/op.h"
#include "plan/plan.h"

namespace linnet {
namespace {

// A strided value repeats itself row by row: of many rows the first and the last ones are looked at.
constexpr int64_t kCheckedRows = 512;

// Owners of byte intervals [begin, end) of one region.
class ByteMap {
 public:
  void write(size_t begin, size_t end, ValueId owner) {
    if (begin == end) return;
    split(begin);
    split(end);
    owners_.erase(owners_.lower_bound(begin), owners_.lower_bound(end));
    owners_[begin] = {end, owner};
  }
  // Whether every byte of [begin, end) is held by a value in `allowed`.
  template <class Allowed>
  bool holds(size_t begin, size_t end, Allowed allowed) const {
    auto it = owners_.upper_bound(begin);
    if (it == owners_.begin()) return begin == end;
    for (--it; begin < end; ++it) {
      if (it == owners_.end() || it->first > begin || it->second.end <= begin || !allowed(it->second.owner))
        return false;
      begin = it->second.end;
    }
    return true;
  }

  bool touches(size_t begin, size_t end) const {
    auto it = owners_.lower_bound(end);
    return it != owners_.begin() && std::prev(it)->second.end > begin;
  }

 private:
  struct Piece {
    size_t end;
    ValueId owner;
  };
  void split(size_t at) {
    auto it = owners_.upper_bound(at);
    if (it == owners_.begin()) return;
    --it;
    if (it->first < at && at < it->second.end) {
      owners_[at] = it->second;
      it->second.end = at;
    }
  }
  std::map<size_t, Piece> owners_;
};

class Replay {
 public:
  Replay(const Plan& plan, const Store& store, const SharedRegions& shared)
      : plan_(plan), graph_(plan.graph), store_(store), shared_(shared) {}

  void run() {
    for (const GraphInput& input : graph_.inputs())
      each_row(input.value, [&](ByteMap& map, size_t b, size_t e) { map.write(b, e, input.value); });
    for (NodeId id = 0; id < graph_.node_count(); ++id) {
      const Node& node = graph_.node(id);
      write_workspace(id);
      for (ValueId in : node.in) check_read(in, [&] { return graph_.where_text(id); });
      check_outputs_apart(id);
      for (ValueId out : node.out) each_row(out, [&](ByteMap& map, size_t b, size_t e) { map.write(b, e, out); });
      check_workspace(id);
    }
    for (const GraphOutput& output : graph_.outputs())
      check_read(output.value, [&] { return "output " + output.name; });
    std::set<ValueId> copied;
    for (const StateUpdate& copy : plan_.copies) copied.insert(copy.state);
    for (const StateUpdate& update : graph_.updates()) {
      check_read(update.value, [] { return std::string("a state update"); });
      const Location &state = plan_.location[static_cast<size_t>(update.state)],
                     &value = plan_.location[static_cast<size_t>(update.value)];
      if (!copied.contains(update.state) && (state.region != value.region || state.offset != value.offset))
        fail_internal("a state's update is neither in its place nor copied there");
    }
  }

 private:
  struct Workspace {
    RegionId region;
    size_t begin, end;
  };

  // Bytes of the arena that the node's kernel scribbles in.
  std::optional<Workspace> workspace(NodeId id) const {
    const auto found = plan_.workspace_in_arena.find(id);
    if (found == plan_.workspace_in_arena.end()) return {};
    const Node& node = graph_.node(id);
    std::vector<TensorType> in, out;
    for (const ValueId value : node.in) in.push_back(graph_.value(value).type);
    for (const ValueId value : node.out) out.push_back(graph_.value(value).type);
    const Kernel& kernel = *plan_.kernels[static_cast<size_t>(id)];
    const size_t bytes = kernel.workspace ? kernel.workspace({node, in, out, plan_.threads, &store_.device()}) : 0;
    if (found->second + bytes > store_.regions()[static_cast<size_t>(shared_.arena)].bytes)
      fail_internal("plan: the workspace of " + graph_.where_text(id) + " lies beyond its region");
    return Workspace{shared_.arena, found->second, found->second + bytes};
  }

  // No value is left in the workspace, so that reading one there later fails ...
  void write_workspace(NodeId id) {
    if (const auto bytes = workspace(id)) maps_[bytes->region].write(bytes->begin, bytes->end, kNone);
  }

  // ... and none of the node's own results lies there.
  void check_workspace(NodeId id) {
    const auto bytes = workspace(id);
    if (bytes && !maps_[bytes->region].holds(bytes->begin, bytes->end, [](ValueId owner) { return owner == kNone; }))
      fail_internal("plan: " + graph_.where_text(id) + " has a result in its workspace");
  }

  // The dense runs of bytes of a value.
  template <class Body>
  void each_row(ValueId id, Body body) {
    const TensorType& type = graph_.value(id).type;
    const Root root = root_of(graph_, id);
    const Location& location = plan_.location[static_cast<size_t>(id)];
    const size_t size = dtype_size(type.dtype);
    if (type.shape.elements() == 0) return;
    if (bounds(id).second > store_.regions()[static_cast<size_t>(location.region)].bytes)
      fail_internal("plan: value %" + std::to_string(id) + " lies beyond its region");
    ByteMap& map = maps_[location.region];
    if (root.strides == dense_strides(type.shape)) return body(map, location.offset, location.offset + type.bytes());
    const int64_t width = type.shape[-1], rows = type.shape.elements() / width;
    for (int64_t row = 0; row < rows; ++row) {
      if (row == kCheckedRows && rows > 2 * kCheckedRows) row = rows - kCheckedRows;
      int64_t rest = row, at = 0;
      for (int axis = type.shape.rank() - 2; axis >= 0; --axis) {
        at += rest % type.shape[axis] * root.strides[axis];
        rest /= type.shape[axis];
      }
      const size_t begin = location.offset + static_cast<size_t>(at) * size;
      body(map, begin, begin + static_cast<size_t>(width) * size);
    }
  }

  // The bytes must come from the value itself, from the whole it is a part of, or from its own parts: then the movement
  // node between them has nothing to do.
  bool same_data(ValueId reader, ValueId owner) const {
    if (owner == reader) return true;
    return root_of(graph_, owner).value == root_of(graph_, reader).value;
  }

  // `where` gives the reader's text for the error.
  template <class Where>
  void check_read(ValueId id, const Where& where) {
    bool good = true;
    each_row(id, [&](ByteMap& map, size_t b, size_t e) {
      good = good && map.holds(b, e, [&](ValueId owner) { return same_data(id, owner); });
    });
    if (!good) fail_internal("plan: " + where() + " reads %" + std::to_string(id) + ", whose bytes were overwritten");
  }

  // Two outputs, or an output and an operand it may not overwrite, must not meet.
  void check_outputs_apart(NodeId id) {
    const Node& node = graph_.node(id);
    for (size_t o = 0; o < node.out.size(); ++o) {
      for (size_t p = 0; p < o; ++p)
        if (meet(node.out[o], node.out[p])) fail_internal("plan: two outputs of " + graph_.where_text(id) + " meet");
      for (size_t i = 0; i < node.in.size(); ++i) {
        if (!meet(node.out[o], node.in[i]) || same_data(node.out[o], node.in[i])) continue;
        if (!node.op->may_overwrite || !node.op->may_overwrite(node, static_cast<int>(o), static_cast<int>(i)))
          fail_internal("plan: " + graph_.where_text(id) + " writes over an operand it may not");
      }
    }
  }

  // From the value's first byte to behind its last one.
  std::pair<size_t, size_t> bounds(ValueId id) const {
    const TensorType& type = graph_.value(id).type;
    const size_t begin = plan_.location[static_cast<size_t>(id)].offset;
    if (type.shape.elements() == 0) return {begin, begin};
    const Root root = root_of(graph_, id);
    int64_t last = 0;
    for (int axis = 0; axis < type.shape.rank(); ++axis) last += (type.shape[axis] - 1) * root.strides[axis];
    return {begin, begin + static_cast<size_t>(last + 1) * dtype_size(type.dtype)};
  }

  bool meet(ValueId a, ValueId b) {
    if (plan_.location[static_cast<size_t>(a)].region != plan_.location[static_cast<size_t>(b)].region) return false;
    const auto [a_begin, a_end] = bounds(a);
    const auto [b_begin, b_end] = bounds(b);
    if (a_end <= b_begin || b_end <= a_begin || interleaved(a, b)) return false;
    ByteMap bytes;
    each_row(a, [&](ByteMap&, size_t begin, size_t end) { bytes.write(begin, end, a); });
    bool any = false;
    each_row(b, [&](ByteMap&, size_t begin, size_t end) { any = any || bytes.touches(begin, end); });
    return any;
  }

  // Columns of one matrix: the same rows, other elements of each.
  bool interleaved(ValueId a, ValueId b) const {
    const Root x = root_of(graph_, a), y = root_of(graph_, b);
    const Shape &p = graph_.value(a).type.shape, &q = graph_.value(b).type.shape;
    if (x.value != y.value || x.strides != y.strides || p.rank() != q.rank() || p.rank() < 2) return false;
    const int64_t pitch = x.strides[-2];
    if (pitch <= 0) return false;
    const int64_t first = x.offset % pitch, second = y.offset % pitch;
    if (x.offset / pitch != y.offset / pitch || first + p[-1] > pitch || second + q[-1] > pitch) return false;
    return first + p[-1] <= second || second + q[-1] <= first;
  }

  const Plan& plan_;
  const Graph& graph_;
  const Store& store_;
  const SharedRegions shared_;
  std::map<RegionId, ByteMap> maps_;
};

}  // namespace

void verify_plan(const Plan& plan, const Store& store, const SharedRegions& shared) {
  Replay(plan, store, shared).run();
}

}  // namespace linnet
