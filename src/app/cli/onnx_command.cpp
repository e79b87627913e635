#include <algorithm>
#include "app/cli/commands.h"
#include "app/cli/print-inl.h"
#include "base/text.h"
#include "onnx/run_file.h"

namespace linnet {
namespace {
struct OnnxArguments {
  std::string folder, file, inputs, out;
  int threads = 0;
  int64_t repeats = 1;
  bool verbose = false, profile = false;
};

int list_operators() {
  for (const OnnxOperatorRow& row : onnx_operators()) print("{:<48}{}\n", row.name, row.note);
  return 0;
}

int test(const OnnxArguments& arguments) {
  const std::vector<OnnxTestResult> results = run_onnx_tests(arguments.folder);
  bool failed = false;
  for (const OnnxTestResult& result : results) {
    const bool fails = result.outcome == OnnxTestResult::kFail;
    failed = failed || fails;
    if (fails || (result.outcome == OnnxTestResult::kUnsupported && arguments.verbose))
      print("{} {}: {}\n", fails ? "failed" : "unsupported", result.name, result.detail);
  }
  print_text(onnx_test_table(results));
  return failed ? 1 : 0;
}

// Prints each op's share, then the twenty slowest nodes.
void print_times(std::vector<Forward::NodeTime> nodes) {
  std::map<std::string, std::pair<double, int>> ops;
  double total = 0;
  for (const Forward::NodeTime& node : nodes) {
    auto& [seconds, count] = ops[node.op];
    seconds += node.seconds, ++count, total += node.seconds;
  }
  std::vector<std::pair<std::string, std::pair<double, int>>> rows(ops.begin(), ops.end());
  std::ranges::sort(rows, std::ranges::greater{}, [](const auto& row) { return row.second.first; });
  print("\n{:<24} {:>10} {:>7} {:>6}\n", "op", "ms", "share", "nodes");
  for (const auto& [op, sum] : rows)
    print("{:<24} {:10.3f} {:6.1f}% {:6}\n", op, sum.first * 1e3, 100 * sum.first / total, sum.second);
  std::ranges::sort(nodes, std::ranges::greater{}, &Forward::NodeTime::seconds);
  nodes.resize(std::min<size_t>(nodes.size(), 20));
  print("\n{:>10}  node\n", "ms");
  for (const Forward::NodeTime& node : nodes) print("{:10.3f}  {}  {}\n", node.seconds * 1e3, node.op, node.types);
}

int run_with_inputs(const OnnxArguments& arguments) {
  const std::unique_ptr<OnnxNetwork> network = load_onnx(arguments.file);
  const OnnxRunReport report = run_onnx_file(*network, arguments.inputs, arguments.out,
      {.threads = arguments.threads, .repeats = arguments.repeats, .profile = arguments.profile});
  for (const auto& [name, type] : report.outputs) print("output {}: {}\n", name, type.shape.text());
  print("{:.3f} ms a run, {:.1f} MB\n", report.seconds * 1e3, megabytes(report.memory_bytes));
  if (arguments.profile) print_times(report.nodes);
  return 0;
}

int import_model(const OnnxArguments& arguments) {
  const std::unique_ptr<OnnxNetwork> network = load_onnx(arguments.file);
  save_onnx_folder(*network, arguments.out);
  print(
      "{}: {} nodes, {} parameters\n", arguments.out, network->model().graph.nodes.size(), network->parameter_count());
  for (const OnnxValueInfo& input : network->inputs()) {
    const std::string dims = joined(input.dims, ", ", [](const OnnxDim& dim) {
      return dim.size >= 0 ? std::to_string(dim.size) : dim.symbol.empty() ? "?" : dim.symbol;
    });
    print("input {}: {}[{}]\n", input.name, element_name(input.element), dims);
  }
  return 0;
}
}  // namespace

void add_import_command(Command& linnet) {
  auto [command, arguments] = linnet.subcommand(
      "import", "read an ONNX model, check that it can be run here, and keep it as a folder", import_model);
  command.take("MODEL", arguments.file, "the ONNX file", {.required = true, .type = "FILE"})
      .take("-o,--out", arguments.out, "the folder to write", {.required = true, .type = "DIR"});
}

void add_onnx_command(Command& linnet) {
  Command onnx = linnet.subcommand("onnx", "what Linnet reads of ONNX");
  onnx.subcommand("operators", "the operators that imported networks may have").does(list_operators);
  auto [tests, tested] =
      onnx.subcommand("test", "run ONNX's backend tests: folders with model.onnx and test_data_set_0", test);
  tests.take("DIR", tested.folder, "a test, or a folder of tests", {.required = true})
      .flag("--verbose", tested.verbose, "name the tests that are not supported, and why");
  auto [runs, arguments] = onnx.subcommand("run", "run a network on the arrays of a file", run_with_inputs);
  runs.take("MODEL", arguments.file, "an ONNX file, or the folder of an imported one", {.required = true})
      .take("INPUTS", arguments.inputs, "a safetensors file with a tensor for each of the network's inputs",
          {.required = true, .type = "FILE"})
      .take("-o,--out", arguments.out, "the safetensors file to write: a tensor for each output",
          {.required = true, .type = "FILE"})
      .take("--repeats", arguments.repeats, "run it so often, for the time of a run (the median)",
          {.least = 1, .most = 1000000, .show_default = true})
      .flag("--profile", arguments.profile, "where the time goes: by op, and the slowest nodes")
      .take_threads(arguments.threads);
}
}  // namespace linnet
