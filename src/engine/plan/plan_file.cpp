#include "engine/plan/plan_file.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "engine/ir/graph_bytes.h"
#include "engine/ir/op.h"

namespace linnet {
namespace {

constexpr std::string_view kMagic = "LINNETPL";
constexpr uint32_t kVersion = 2;
constexpr uint64_t kMostBytes = uint64_t{1} << 58;  // of a region or an offset

void write_location(const Location& location, ByteWriter& bytes) {
  bytes.number(static_cast<int32_t>(location.region));
  bytes.number(static_cast<uint64_t>(location.offset));
}

void write_plan(const Plan& plan, ByteWriter& bytes) {
  write_graph(plan.graph, bytes);
  for (const Kernel* kernel : plan.kernels) bytes.string(kernel->name);
  for (const Location& location : plan.location) write_location(location, bytes);
  bytes.number(static_cast<uint32_t>(plan.workspace_in_arena.size()));
  for (const auto& [node, offset] : plan.workspace_in_arena)
    bytes.number(node), bytes.number(static_cast<uint64_t>(offset));
  bytes.number(static_cast<uint32_t>(plan.copies.size()));
  for (const StateUpdate& copy : plan.copies) bytes.number(copy.state), bytes.number(copy.value);
  for (const size_t size : {plan.arena_bytes, plan.arena_lower_bound, plan.workspace_bytes})
    bytes.number(static_cast<uint64_t>(size));
  bytes.number(static_cast<int32_t>(plan.threads));
}

class Reader {
 public:
  Reader(ByteReader& bytes, Store& store) : bytes_(bytes), store_(store) {}

  LoadedPlans run() {
    if (!store_.regions().empty()) fail_internal("plans are read into a store that has regions");
    read_regions();
    LoadedPlans loaded;
    loaded.shared = {region(), region()};
    for (size_t left = bytes_.count(8); left > 0; --left) {
      const std::string name(bytes_.string());
      loaded.plans[name] = read_plan(loaded.shared);
    }
    if (!bytes_.at_end()) bytes_.fail("it goes on after its end");
    return loaded;
  }

 private:
  uint64_t size() {
    const auto value = bytes_.number<uint64_t>();
    if (value > kMostBytes) bytes_.fail("a size is impossible");
    return value;
  }

  RegionId region() {
    const auto id = bytes_.number<int32_t>();
    if (id < 0 || static_cast<size_t>(id) >= store_.regions().size()) bytes_.fail("it names a region it does not have");
    return id;
  }

  Location read_location() {
    const RegionId id = region();
    return {id, size()};
  }

  void read_regions() {
    for (size_t left = bytes_.count(13); left > 0; --left) {
      const std::string name(bytes_.string());
      const auto kind = bytes_.number<uint8_t>();
      if (kind > static_cast<uint8_t>(MemoryKind::kWorkspace)) bytes_.fail("a region is of an unknown kind");
      store_.add_region(name, static_cast<MemoryKind>(kind), size());
    }
    for (size_t left = bytes_.count(24); left > 0; --left) {
      const std::string name(bytes_.string());
      const Location location = read_location();
      const size_t capacity = size();
      if (store_.has(name)) bytes_.fail("\"" + name + "\" is bound twice");
      if (location.offset + capacity > store_.regions()[static_cast<size_t>(location.region)].bytes)
        bytes_.fail("\"" + name + "\" lies beyond its region");
      store_.bind(name, location, capacity);
    }
  }

  Plan read_plan(const SharedRegions& shared) {
    Plan plan;
    plan.graph = read_graph(bytes_, find_op);
    std::vector<std::string> kernels;
    for (NodeId id = 0; id < plan.graph.node_count(); ++id) kernels.emplace_back(bytes_.string());
    for (ValueId id = 0; id < plan.graph.value_count(); ++id) plan.location.push_back(location_of(plan.graph, id));
    for (size_t left = bytes_.count(12); left > 0; --left) {
      const auto node = bytes_.number<NodeId>();
      if (node < 0 || node >= plan.graph.node_count()) bytes_.fail("it has a workspace of what is no node");
      plan.workspace_in_arena[node] = size();
    }
    for (size_t left = bytes_.count(8); left > 0; --left) {
      const auto state = bytes_.number<ValueId>(), value = bytes_.number<ValueId>();
      const auto& updates = plan.graph.updates();
      if (std::none_of(updates.begin(), updates.end(),
                       [&](const StateUpdate& u) { return u.state == state && u.value == value; }))
        bytes_.fail("it copies what is not a state");
      plan.copies.push_back({state, value});
    }
    plan.arena_bytes = size(), plan.arena_lower_bound = size(), plan.workspace_bytes = size();
    plan.threads = bytes_.number<int32_t>();
    if (plan.threads < 1 || plan.threads > 65536) bytes_.fail("the number of threads is impossible");
    check_inputs(plan);
    choose_kernels(plan, kernels);
    store_.grow_region(shared.workspace, plan.workspace_bytes);
    verify(plan, shared);
    return plan;
  }

  // Every byte of a value lies in its region.
  Location location_of(const Graph& graph, ValueId id) {
    const Location location = read_location();
    const Root root = root_of(graph, id);
    const TensorType& type = graph.value(id).type;
    int64_t last = 0;
    for (int axis = 0; axis < type.shape.rank(); ++axis)
      last += (std::max<int64_t>(type.shape[axis], 1) - 1) * root.strides[axis];
    const size_t bytes = type.shape.elements() ? (static_cast<size_t>(last) + 1) * dtype_size(type.dtype) : 0;
    if (location.offset + bytes > store_.regions()[static_cast<size_t>(location.region)].bytes)
      bytes_.fail("a value lies beyond its region");
    return location;
  }

  // An input lies where the store has its name.
  void check_inputs(const Plan& plan) {
    for (const GraphInput& input : plan.graph.inputs()) {
      if (!store_.has(input.name)) bytes_.fail("input " + input.name + " is not bound");
      const Location &bound = store_.find(input.name, 0), &used = plan.location[static_cast<size_t>(input.value)];
      if (bound.region != used.region || bound.offset != used.offset)
        bytes_.fail("input " + input.name + " does not lie where its name is");
    }
  }

  void choose_kernels(Plan& plan, const std::vector<std::string>& names) {
    for (NodeId id = 0; id < plan.graph.node_count(); ++id) {
      const Node& node = plan.graph.node(id);
      std::vector<TensorType> in, out;
      for (const ValueId value : node.in) in.push_back(plan.graph.value(value).type);
      for (const ValueId value : node.out) out.push_back(plan.graph.value(value).type);
      const KernelQuery query{node, in, out, plan.threads, &store_.device()};
      const Kernel* kernel = find_named_kernel(query, names[static_cast<size_t>(id)], store_.backend());
      if (!kernel)
        fail_user(bytes_.what() + " wants the kernel " + names[static_cast<size_t>(id)] + " of " + node.op->name +
                  ", which this program or machine does not have");
      plan.kernels.push_back(kernel);
      if (kernel->workspace && !plan.workspace_in_arena.contains(id))
        plan.workspace_bytes = std::max(plan.workspace_bytes, kernel->workspace(query));
    }
  }

  void verify(const Plan& plan, const SharedRegions& shared) {
    try {
      verify_plan(plan, store_, shared);
    } catch (const Error& error) {
      bytes_.fail(error.what());
    }
  }

  ByteReader& bytes_;
  Store& store_;
};

}  // namespace

std::string plans_to_bytes(const Store& store, const SharedRegions& shared, const NamedPlans& plans) {
  ByteWriter bytes;
  bytes.number(static_cast<uint32_t>(store.regions().size()));
  for (const Store::Region& region : store.regions()) {
    bytes.string(region.name);
    bytes.number(static_cast<uint8_t>(region.kind));
    bytes.number(static_cast<uint64_t>(region.bytes));
  }
  bytes.number(static_cast<uint32_t>(store.bindings().size()));
  for (const auto& [name, binding] : store.bindings()) {
    bytes.string(name);
    write_location(binding.location, bytes);
    bytes.number(static_cast<uint64_t>(binding.capacity));
  }
  bytes.number(static_cast<int32_t>(shared.arena));
  bytes.number(static_cast<int32_t>(shared.workspace));
  bytes.number(static_cast<uint32_t>(plans.size()));
  for (const auto& [name, plan] : plans) {
    bytes.string(name);
    write_plan(*plan, bytes);
  }
  ByteWriter file;
  file.number(fnv1a(bytes.bytes()));
  file.number(kVersion);
  return std::string(kMagic) + file.bytes() + bytes.bytes();
}

void write_plans(const std::string& path, const Store& store, const SharedRegions& shared, const NamedPlans& plans) {
  write_file_atomically(path, plans_to_bytes(store, shared, plans));
}

LoadedPlans parse_plans(std::string_view bytes, Store& store, const std::string& what) {
  if (!bytes.starts_with(kMagic)) fail_user(what + " is not a file of plans");
  ByteReader reader(bytes.substr(kMagic.size()), what);
  const auto hash = reader.number<uint64_t>();
  const auto version = reader.number<uint32_t>();
  if (version != kVersion)
    fail_user(what + " is of version " + std::to_string(version) + ", and this program reads version " +
              std::to_string(kVersion));
  constexpr size_t kHeader = kMagic.size() + sizeof hash + sizeof version;
  if (fnv1a(bytes.substr(kHeader)) != hash) reader.fail("its checksum does not match");
  return Reader(reader, store).run();
}

LoadedPlans read_plans(const std::string& path, Store& store) {
  const std::string bytes = read_file(path);
  return parse_plans(bytes, store, "'" + path + "'");
}

}  // namespace linnet
