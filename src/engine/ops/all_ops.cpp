#include "base/text.h"
#include "engine/ops/op_table.h"
#include "engine/ops/own/own.h"

namespace linnet {
LINNET_OPS(LINNET_OP_KERNELS)
namespace {
const Kernel* choose(KernelList kernels, const KernelQuery& query) {
  for (const Kernel& kernel : kernels)
    if (!kernel.supports || kernel.supports(query)) return &kernel;
  return nullptr;
}

KernelList own_kernels(const OpDef& op, const Backend& backend) {  // of an op that brings them itself
  return backend.has_references ? op.kernels() : KernelList{};
}

KernelList kernels_of(const Backend& backend, std::string_view op) {
  const BackendOp* entry = find_item(backend.ops, op, &BackendOp::op);
  return entry ? entry->kernels : KernelList{};
}

// A backend may list an op twice: its own kernels, then a library's.
const Kernel* find_fast_kernel(const KernelQuery& query, const Backend& backend) {
  if (query.node.op->kernels) {
    const KernelList kernels = own_kernels(*query.node.op, backend);
    return kernels.empty() ? nullptr : choose(kernels.first(kernels.size() - 1), query);
  }
  for (const BackendOp& entry : backend.ops) {
    if (std::strcmp(entry.op, query.node.op->name) != 0) continue;
    const size_t count = entry.kernels.size() - (backend.has_references ? 1 : 0);
    if (const Kernel* kernel = choose(entry.kernels.first(count), query)) return kernel;
  }
  return nullptr;
}

[[noreturn]] void fail_no_kernel(const KernelQuery& query, const Backend& backend) {
  const std::string types = joined(query.in, ", ", &TensorType::text);
  fail_user(backend.device->info().name, " has no kernel for ", query.node.op->name, "(", types, ") {",
      query.node.attrs.text(), "}");
}
}  // namespace

// Ops that programs define are in ops/own instead.
std::span<const OpEntry> all_ops() {
  static const std::array ops{LINNET_OPS(LINNET_OP_ENTRY)};
  return ops;
}

const Backend& cpu_backend() {
  static const std::vector<BackendOp> ops = mapped(all_ops(), [](const OpEntry& entry) {
    return BackendOp{entry.op->name, entry.kernels};
  });
  static const Backend backend{&cpu_device(), ops, /*has_references=*/true};
  return backend;
}

const Kernel& find_kernel(const KernelQuery& query, KernelSet set, const Backend& backend) {
  if (set == KernelSet::kFast)
    if (const Kernel* kernel = find_fast_kernel(query, backend)) return *kernel;
  const OpDef& op = *query.node.op;
  const KernelList kernels = op.kernels ? own_kernels(op, backend) : kernels_of(backend, op.name);
  if (!backend.has_references || kernels.empty()) fail_no_kernel(query, backend);
  return kernels.back();
}

bool has_fast_kernel(
    const Node& node, std::span<const TensorType> in, std::span<const TensorType> out, const Backend& backend) {
  return find_fast_kernel({node, in, out, /*threads=*/1, backend.device}, backend) != nullptr;
}

const OpDef* find_op(std::string_view name) {
  for (const OpEntry& entry : all_ops())
    if (name == entry.op->name) return entry.op;
  return find_own_op(name);
}
}  // namespace linnet
