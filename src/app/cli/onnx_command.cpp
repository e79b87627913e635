#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include "app/cli/commands.h"
#include "base/text.h"
#include "onnx/network.h"
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
  for (const OnnxOperatorRow& row : onnx_operators()) std::printf("%-48s%s\n", row.name, row.note);
  return 0;
}

int test(const std::string& folder, bool verbose) {
  const std::vector<OnnxTestResult> results = run_onnx_tests(folder);
  bool failed = false;
  for (const OnnxTestResult& result : results) {
    failed = failed || result.outcome == OnnxTestResult::kFail;
    if (result.outcome == OnnxTestResult::kFail)
      std::printf("failed %s: %s\n", result.name.c_str(), result.detail.c_str());
    if (result.outcome == OnnxTestResult::kUnsupported && verbose)
      std::printf("unsupported %s: %s\n", result.name.c_str(), result.detail.c_str());
  }
  std::fputs(onnx_test_table(results).c_str(), stdout);
  return failed ? 1 : 0;
}

// Each op's share, then the twenty slowest nodes.
void print_times(std::vector<Forward::NodeTime> nodes) {
  std::map<std::string, std::pair<double, int>> ops;
  double total = 0;
  for (const Forward::NodeTime& node : nodes) {
    auto& [seconds, count] = ops[node.op];
    seconds += node.seconds, ++count, total += node.seconds;
  }
  std::vector<std::pair<std::string, std::pair<double, int>>> rows(ops.begin(), ops.end());
  std::ranges::sort(rows, std::ranges::greater{}, [](const auto& row) { return row.second.first; });
  std::printf("\n%-24s %10s %7s %6s\n", "op", "ms", "share", "nodes");
  for (const auto& [op, sum] : rows)
    std::printf("%-24s %10.3f %6.1f%% %6d\n", op.c_str(), sum.first * 1e3, 100 * sum.first / total, sum.second);
  std::ranges::sort(nodes, std::ranges::greater{}, &Forward::NodeTime::seconds);
  nodes.resize(std::min<size_t>(nodes.size(), 20));
  std::printf("\n%10s  node\n", "ms");
  for (const Forward::NodeTime& node : nodes)
    std::printf("%10.3f  %s  %s\n", node.seconds * 1e3, node.op.c_str(), node.types.c_str());
}

int run_with_inputs(const OnnxArguments& arguments) {
  const std::unique_ptr<OnnxNetwork> network = load_onnx(arguments.file);
  const OnnxRunReport report =
      run_onnx_file(*network, arguments.inputs, arguments.out,
                    {.threads = arguments.threads, .repeats = arguments.repeats, .profile = arguments.profile});
  for (const auto& [name, type] : report.outputs)
    std::printf("output %s: %s\n", name.c_str(), type.shape.text().c_str());
  std::printf("%.3f ms a run, %.1f MB\n", report.seconds * 1e3, static_cast<double>(report.memory_bytes) / 1e6);
  if (arguments.profile) print_times(report.nodes);
  return 0;
}

int import_model(const std::string& file, const std::string& out) {
  const std::unique_ptr<OnnxNetwork> network = load_onnx(file);
  save_onnx_folder(*network, out);
  std::printf("%s: %zu nodes, %lld parameters\n", out.c_str(), network->model().graph.nodes.size(),
              static_cast<long long>(network->parameter_count()));
  for (const OnnxValueInfo& input : network->inputs()) {
    const std::string dims = joined(input.dims, ", ", [](const OnnxDim& dim) {
      return dim.size >= 0 ? std::to_string(dim.size) : dim.symbol.empty() ? "?" : dim.symbol;
    });
    std::printf("input %s: %s[%s]\n", input.name.c_str(), element_name(input.element).c_str(), dims.c_str());
  }
  return 0;
}

}  // namespace

void add_import_command(Command& linnet) {
  auto arguments = std::make_shared<OnnxArguments>();
  linnet.subcommand("import", "read an ONNX model, check that it can be run here, and keep it as a folder")
      .take("MODEL", arguments->file, "the ONNX file", {.required = true, .type = "FILE"})
      .take("-o,--out", arguments->out, "the folder to write", {.required = true, .type = "DIR"})
      .does([arguments] { return import_model(arguments->file, arguments->out); });
}

void add_onnx_command(Command& linnet) {
  auto arguments = std::make_shared<OnnxArguments>();
  Command onnx = linnet.subcommand("onnx", "what Linnet reads of ONNX");
  onnx.subcommand("operators", "the operators that imported networks may have").does(list_operators);
  onnx.subcommand("test", "run ONNX's backend tests: folders with model.onnx and test_data_set_0")
      .take("DIR", arguments->folder, "a test, or a folder of tests", {.required = true})
      .flag("--verbose", arguments->verbose, "name the tests that are not supported, and why")
      .does([arguments] { return test(arguments->folder, arguments->verbose); });
  onnx.subcommand("run", "run a network on the arrays of a file")
      .take("MODEL", arguments->file, "an ONNX file, or the folder of an imported one", {.required = true})
      .take("INPUTS", arguments->inputs, "a safetensors file with a tensor for each of the network's inputs",
            {.required = true, .type = "FILE"})
      .take("-o,--out", arguments->out, "the safetensors file to write: a tensor for each output",
            {.required = true, .type = "FILE"})
      .take("--repeats", arguments->repeats, "run it so often, for the time of a run (the median)",
            {.least = 1, .most = 1000000, .show_default = true})
      .flag("--profile", arguments->profile, "where the time goes: by op, and the slowest nodes")
      .take_threads(arguments->threads)
      .does([arguments] { return run_with_inputs(*arguments); });
}

}  // namespace linnet
