#include "linnet/tracer.h"
#include <algorithm>
#include <cstring>
#include "api/cpp/helpers.h"
#include "api/cpp/learner_state.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "engine/exec/interpreter.h"
#include "engine/ir/op.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/own/own.h"
#include "engine/ops/reduce/reduce.h"
#include "linnet/own_op.h"
#include "models/nn/trace.h"

namespace linnet {
namespace {
void check_traced_name(const std::string& what, const std::string& name) {
  for (const char c : name)
    if (static_cast<unsigned char>(c) < ' ') fail_user("a name of an ", what, " has a control character");
  if (is_reserved(name)) fail_user("an ", what, " cannot be called \"", name, "\", a name that the trainer uses");
}

// Ranges of parallel(): at most so many, with at least so many elements.
constexpr int64_t kMostRanges = 64, kLeastElements = 1024;

std::vector<OpArray> arrays(std::span<const TensorView> views) {
  return mapped(views, [](const TensorView& view) { return OpArray{view.data, view.type}; });
}

void run_kernel(const OpDefinition& op, const KernelArgs& args, std::span<const double> numbers) {
  const std::vector<OpArray> in = arrays(args.in), out = arrays(args.out);
  const auto parallel = [&](int64_t count, const std::function<void(int64_t, int64_t)>& body) {
    if (count < 1) return;
    const int64_t ranges = std::min(kMostRanges, ceil_div(count, kLeastElements));
    args.pool.run(ranges, [&](int64_t i, int) { body(count * i / ranges, count * (i + 1) / ranges); });
  };
  op.kernel({in, out, numbers, parallel});
}

// Supports all types, slowly: runs the decomposition node by node.
void run_decomposition(const OpDefinition& op, const KernelArgs& args, std::span<const double> numbers) {
  Graph graph;
  std::vector<Tensor> in;
  NamedTensors values;
  for (size_t i = 0; i < args.in.size(); ++i) {
    const std::string name = "in" + std::to_string(i);
    in.push_back(graph.input(name, args.in[i].type));
    HostTensor& value = values[name] = HostTensor(args.in[i].type);
    std::memcpy(value.data(), args.in[i].data, args.in[i].type.bytes());
  }
  const std::vector<Tensor> out = op.decompose({in, numbers});
  for (size_t i = 0; i < args.out.size(); ++i) {
    if (i >= out.size() || out[i].type() != args.out[i].type)
      fail_user("the decomposition of the op ", op.name, " gives ", i < out.size() ? out[i].type().text() : "no tensor",
          " as result ", i, ", and its shape inference ", args.out[i].type);
    graph.output("out" + std::to_string(i), out[i]);
  }
  const NamedTensors results = interpret(graph, values).outputs;
  for (size_t i = 0; i < args.out.size(); ++i)
    std::memcpy(args.out[i].data, results.at("out" + std::to_string(i)).data(), args.out[i].type.bytes());
}
}  // namespace

bool is_reserved(const std::string& name) {
  constexpr std::array kNames{state::kParameters, state::kConstants, state::kControl, state::kRandom, state::kMoment1,
      state::kMoment2, state::kAverage, state::kGradient, state::kLossSum, state::kTokenCount, state::kLossScale,
      "quantized", kRowMask};
  for (const char* reserved : kNames)
    if (name == reserved || name.starts_with(std::string(reserved) + ".")) return true;
  return false;
}

Tensor Tracer::input(const std::string& name) {
  if (!types_) fail_user("input \"", name, "\" has no type: give it one, or construct the learner with batch shapes");
  if (const TensorType* type = find_value(*types_, name)) return input(name, *type);
  const std::string names = joined(*types_, ", ", [](const auto& entry) { return entry.first; });
  fail_user("the batches have no \"", name, "\"; they have ", names.empty() ? "nothing" : names);
}

Tensor Tracer::input(const std::string& name, const TensorType& type) {
  if (name.empty()) fail_user("an input has no name");
  check_traced_name("input", name);
  for (const int64_t size : type.shape.sizes())
    if (size < 1) throw Error(ErrorKind::kShape, "input \"" + name + "\" is " + type.text() + "; sizes are at least 1");
  checked_bytes("input \"" + name + "\"", type);
  return trace_->input(name, type);
}

Tensor Tracer::row_mask() {
  const int64_t rows = most_rows(types_ ? *types_ : declared(trace_->graph()));
  if (rows == 0) fail_user("the rows of the batch are counted, and no input before has any");
  return trace_->input(kRowMask, {trace_->options().dtype, {rows}});
}

Tensor Tracer::sample_count() { return sum_to(row_mask(), {}); }

Tensor Tracer::number(double value, SourceLine where) { return trace_->number(value, where); }

Tensor Tracer::full(const TensorType& type, double value, SourceLine where) {
  return fill(trace_->graph(), type, value, where);
}

void Tracer::output(const std::string& name, At value, const OutputOptions& options) {
  check_traced_name("output", name);
  if (!value.value.defined()) fail_user(value.where.text(), ": output \"", name, "\" is an undefined tensor");
  (void)value.value.type();  // an Error when its recording has ended
  if (value.value.graph != &trace_->graph())
    fail_user(value.where.text(), ": output \"", name, "\" is a tensor of another graph");
  if (training() && !options.training) return;
  if (contains(trace_->graph().outputs(), name, &GraphOutput::name))
    fail_user(value.where.text(), ": there is an output \"", name, "\" already");
  trace_->graph().output(name, value.value);
}

bool Tracer::training() const { return trace_->options().training; }

OwnOp::OwnOp(OpDefinition definition) {
  if (definition.name.empty()) fail_user("an op has no name");
  if (!definition.infer || !definition.decompose || !definition.kernel)
    fail_user("the op \"", definition.name, "\" needs infer, decompose and kernel");
  const auto op = std::make_shared<const OpDefinition>(std::move(definition));
  OwnOpFunctions functions{.name = op->name};
  functions.infer = [op](auto in, auto numbers) { return op->infer({in, numbers}); };
  functions.decompose = [op](auto in, auto numbers) { return op->decompose({in, numbers}); };
  if (op->gradient)
    functions.gradient = [op](const GradientArgs& args, auto numbers) {
      return op->gradient({args.in, args.out, args.out_grad, numbers});
    };
  functions.run = [op](const KernelArgs& args, auto numbers) { run_kernel(*op, args, numbers); };
  functions.run_reference = [op](const KernelArgs& args) {
    run_decomposition(*op, args, args.node.attrs.as<OwnOpAttrs>().numbers);
  };
  def_ = &register_own_op(std::move(functions));
}

Tensor OwnOp::operator()(At first, const std::vector<Tensor>& rest, const std::vector<double>& numbers) const {
  const std::vector<Tensor> results = all(first, rest, numbers);
  if (results.empty()) fail_user(first.where.text(), ": the op ", def_->name, " has no results");
  return results[0];
}

std::vector<Tensor> OwnOp::all(At first, const std::vector<Tensor>& rest, const std::vector<double>& numbers) const {
  std::vector<Tensor> operands{first.value};
  operands.insert(operands.end(), rest.begin(), rest.end());
  const OwnOpAttrs attrs = own_op_attrs(*def_, numbers);
  Graph& graph = *graph_of(first);
  // Recorded even if decomposed: this checks the types.
  const std::vector<Tensor> results = graph.add(*def_, operands, attrs, first.where);
  if (!Trace::must_decompose() || results.empty()) return results;
  const Node node{def_, attrs, {}, std::vector<ValueId>(results.size()), first.where, kNone};
  return def_->decompose({graph, node, operands});
}
}  // namespace linnet
