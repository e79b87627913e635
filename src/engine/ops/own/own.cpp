#include "engine/ops/own/own.h"
#include <deque>
#include "base/numbers.h"

namespace linnet {
namespace {
struct Entry {
  OwnOpFunctions functions;
  OpDef def;
};

// Entries are never removed, and a deque does not move them.
struct Registry {
  std::mutex mutex;
  std::deque<Entry> entries;

  const Entry& entry(const Attrs& attrs) {
    const std::lock_guard lock(mutex);
    return entries.at(attrs.as<OwnOpAttrs>().op);
  }
};

// Never destroyed: a program's static objects may use it until the end.
Registry& registry() {
  static auto* registry = new Registry;
  return *registry;
}

const OwnOpFunctions& functions_of(const Attrs& attrs) { return registry().entry(attrs).functions; }

std::span<const double> numbers_of(const Attrs& attrs) { return attrs.as<OwnOpAttrs>().numbers; }

std::vector<TensorType> infer_own(const InferArgs& args) {
  try {
    return functions_of(args.attrs).infer(args.in, numbers_of(args.attrs));
  } catch (const Error& error) {  // the graph adds the line and the module
    throw ShapeProblem(error.what());
  }
}

void check_count(const Node& node, const char* what, size_t given, size_t expected) {
  if (given != expected)
    fail_user("the ", what, " of the op ", node.op->name, " gives ", given, " tensors, expected ", expected);
}

std::vector<Tensor> own_gradient(const GradientArgs& args) {
  std::vector<Tensor> result = functions_of(args.node.attrs).gradient(args, numbers_of(args.node.attrs));
  check_count(args.node, "gradient", result.size(), args.in.size());
  for (size_t i = 0; i < result.size(); ++i)
    if (result[i].defined() && result[i].type() != args.in[i].type())
      fail_user("the gradient of the op ", args.node.op->name, " gives operand ", i, " of type ",
          args.in[i].type().text(), " a gradient of type ", result[i].type().text());
  return result;
}

std::vector<Tensor> decompose_own(const DecomposeArgs& args) {
  std::vector<Tensor> result = functions_of(args.node.attrs).decompose(args.in, numbers_of(args.node.attrs));
  check_count(args.node, "decomposition", result.size(), args.node.out.size());
  return result;
}

void run_own(const KernelArgs& args) { functions_of(args.node.attrs).run(args, numbers_of(args.node.attrs)); }

void run_own_reference(const KernelArgs& args) { functions_of(args.node.attrs).run_reference(args); }
}  // namespace

std::string OwnOpAttrs::text() const {
  std::string text;
  append_shortest(text, numbers, ' ');
  return text;
}

const OpDef& register_own_op(OwnOpFunctions functions) {
  if (find_op(functions.name)) fail_user("there is an op \"", functions.name, "\" already");
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (const Entry& entry : all.entries)
    if (entry.functions.name == functions.name) fail_user("there is an op \"", functions.name, "\" already");
  const bool has_gradient = functions.gradient != nullptr;
  Entry& entry = all.entries.emplace_back(Entry{std::move(functions), OpDef{.name = "", .infer = infer_own}});
  entry.def.name = entry.functions.name.c_str();
  entry.def.gradient = has_gradient ? own_gradient : nullptr;
  entry.def.decompose = decompose_own;
  entry.def.kernels = own_op_kernels;
  return entry.def;
}

OwnOpAttrs own_op_attrs(const OpDef& op, std::span<const double> numbers) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (size_t i = 0; i < all.entries.size(); ++i)
    if (&all.entries[i].def == &op) return {static_cast<int64_t>(i), {numbers.begin(), numbers.end()}};
  fail_internal(op.name, " is no op of a program");
}

const OpDef* find_own_op(std::string_view name) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (const Entry& entry : all.entries)
    if (entry.functions.name == name) return &entry.def;
  return nullptr;
}

LINNET_KERNELS(own_op, {"own", run_own, all_f32}, {"reference", run_own_reference})
}  // namespace linnet
