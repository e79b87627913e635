// Proves a plan by replaying its nodes on a map of which value each byte holds. Independent of how it was made.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>
#include "base/fail.h"
#include "base/functions.h"
#include "engine/ir/op.h"
#include "engine/plan/byte_map.h"
#include "engine/plan/plan.h"

namespace linnet {
namespace {
// Beyond this many parts from either end, a value's middle parts are not checked.
constexpr size_t kCheckedParts = 512;

class Replay {
 public:
  Replay(const Plan& plan, const Store& store, const SharedRegions& shared)
      : plan_(plan), graph_(plan.graph), store_(store), shared_(shared) {
    for (ValueId id = 0; id < graph_.value_count(); ++id) roots_.push_back(root_of(graph_, id));
  }

  void run() {
    for (const GraphInput& input : graph_.inputs())
      each_part(input.value, [&](ByteMap& map, const ByteRows& bytes) { map.write(bytes, input.value); });
    for (NodeId id = 0; id < graph_.node_count(); ++id) {
      const Node& node = graph_.node(id);
      const std::optional<ByteRows> own = workspace(id);
      if (own) maps_[shared_.arena].write(*own, kNone);  // so that reading there later fails
      for (ValueId in : node.in) check_read(in, [&] { return graph_.where_text(id); });
      check_outputs_apart(id);
      for (ValueId out : node.out) each_part(out, [&](ByteMap& map, const ByteRows& bytes) { map.write(bytes, out); });
      if (own && !maps_[shared_.arena].holds(*own, [](ValueId owner) { return owner == kNone; }))
        fail_internal("plan: ", graph_.where_text(id), " has a result in its workspace");
    }
    for (const GraphOutput& output : graph_.outputs())
      check_read(output.value, [&] { return "output " + output.name; });
    std::set<ValueId> copied;
    for (const StateUpdate& copy : plan_.copies) copied.insert(copy.state);
    for (const StateUpdate& update : graph_.updates()) {
      check_read(update.value, [] { return std::string("a state update"); });
      const Location &state = plan_.location[update.state], &value = plan_.location[update.value];
      if (!copied.contains(update.state) && (state.region != value.region || state.offset != value.offset))
        fail_internal("a state's update is neither in its place nor copied there");
    }
  }

 private:
  // The arena bytes of the node's workspace, if it lies there.
  std::optional<ByteRows> workspace(NodeId id) const {
    const size_t* begin = find_value(plan_.workspace_in_arena, id);
    if (!begin) return {};
    const Node& node = graph_.node(id);
    const auto [in, out] = types_of(graph_, node);
    const Kernel& kernel = *plan_.kernels[id];
    const size_t bytes = kernel.workspace ? kernel.workspace({node, in, out, plan_.threads, &store_.device()}) : 0;
    if (*begin + bytes > store_.regions()[shared_.arena].bytes)
      fail_internal("plan: the workspace of ", graph_.where_text(id), " lies beyond its region");
    return ByteRows{*begin, 1, 0, bytes};
  }

  // A dense value is one part, columns of a matrix their rows, others more parts.
  void each_part(ValueId id, FunctionRef<void(ByteMap&, const ByteRows&)> body) {
    const TensorType& type = graph_.value(id).type;
    const Location& location = plan_.location[id];
    if (type.shape.elements() == 0) return;
    if (bounds(id).second > store_.regions()[location.region].bytes)
      fail_internal("plan: value %", id, " lies beyond its region");
    ByteMap& map = maps_[location.region];
    const Shape& strides = roots_[id].strides;
    if (strides == dense_strides(type.shape)) return body(map, ByteRows{location.offset, 1, 0, type.bytes()});
    // Axes from the smallest stride to the largest, without those that revisit the same bytes.
    struct Axis {
      size_t size, stride;  // bytes
    };
    std::vector<Axis> axes;
    size_t width = dtype_size(type.dtype);
    for (int axis = 0; axis < type.shape.rank(); ++axis)
      if (type.shape[axis] > 1 && strides[axis] != 0)
        axes.push_back({static_cast<size_t>(type.shape[axis]), static_cast<size_t>(strides[axis]) * width});
    std::ranges::sort(axes, {}, &Axis::stride);
    std::vector<Axis> outer;
    for (const Axis& axis : axes) {
      if (outer.empty() && axis.stride == width) width *= axis.size;
      else if (!outer.empty() && axis.stride == outer.back().size * outer.back().stride) outer.back().size *= axis.size;
      else outer.push_back(axis);
    }
    ByteRows rows{location.offset, 1, 0, width};
    if (!outer.empty() && outer.front().stride >= width) {
      rows.rows = outer.front().size, rows.pitch = outer.front().stride;
      outer.erase(outer.begin());
    }
    size_t parts = 1;
    for (const Axis& axis : outer) parts *= axis.size;
    for (size_t part = 0; part < parts; ++part) {
      if (part == kCheckedParts && parts > 2 * kCheckedParts) part = parts - kCheckedParts;
      size_t rest = part, offset = 0;
      for (const Axis& axis : outer) offset += rest % axis.size * axis.stride, rest /= axis.size;
      rows.begin = location.offset + offset;
      body(map, rows);
    }
  }

  // The bytes must come from the value itself, its whole, or its own parts; the node in between is then a no-op.
  bool same_data(ValueId reader, ValueId owner) const {
    return owner == reader || (owner != kNone && roots_[owner].value == roots_[reader].value);
  }

  // `where` gives the reader's text for the error.
  template <class Where> void check_read(ValueId id, const Where& where) {
    bool good = true;
    each_part(id, [&](ByteMap& map, const ByteRows& bytes) {
      good = good && map.holds(bytes, [&](ValueId owner) { return same_data(id, owner); });
    });
    if (!good) fail_internal("plan: ", where(), " reads %", id, ", whose bytes were overwritten");
  }

  // Two outputs, or an output and an operand it may not overwrite, must not overlap.
  void check_outputs_apart(NodeId id) {
    const Node& node = graph_.node(id);
    for (size_t o = 0; o < node.out.size(); ++o) {
      for (size_t p = 0; p < o; ++p)
        if (meet(node.out[o], node.out[p])) fail_internal("plan: two outputs of ", graph_.where_text(id), " meet");
      for (size_t i = 0; i < node.in.size(); ++i) {
        if (!meet(node.out[o], node.in[i]) || same_data(node.out[o], node.in[i])) continue;
        if (!node.op->may_overwrite || !node.op->may_overwrite(node, static_cast<int>(o), static_cast<int>(i)))
          fail_internal("plan: ", graph_.where_text(id), " writes over an operand it may not");
      }
    }
  }

  std::pair<size_t, size_t> bounds(ValueId id) const {
    const TensorType& type = graph_.value(id).type;
    const size_t begin = plan_.location[id].offset;
    const int64_t extent = strided_extent(type.shape, roots_[id].strides);
    return {begin, begin + static_cast<size_t>(extent) * dtype_size(type.dtype)};
  }

  bool meet(ValueId a, ValueId b) {
    if (plan_.location[a].region != plan_.location[b].region) return false;
    const auto [a_begin, a_end] = bounds(a);
    const auto [b_begin, b_end] = bounds(b);
    if (a_end <= b_begin || b_end <= a_begin || interleaved(a, b)) return false;
    ByteMap bytes;
    each_part(a, [&](ByteMap&, const ByteRows& rows) { bytes.write(rows, a); });
    bool any = false;
    each_part(b, [&](ByteMap&, const ByteRows& rows) { any = any || bytes.touches(rows); });
    return any;
  }

  // Columns of one matrix: the same rows, other elements of each.
  bool interleaved(ValueId a, ValueId b) const {
    const Root &x = roots_[a], &y = roots_[b];
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
  std::vector<Root> roots_;  // of each value
  std::map<RegionId, ByteMap> maps_;
};
}  // namespace

void verify_plan(const Plan& plan, const Store& store, const SharedRegions& shared) {
  Replay(plan, store, shared).run();
}
}  // namespace linnet
