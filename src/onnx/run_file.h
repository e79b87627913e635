// Runs an imported network on a file's arrays: `linnet onnx run`.
#pragma once
#include <string>
#include <vector>
#include "engine/kernels/precision.h"
#include "models/nn/forward.h"
#include "onnx/network.h"

namespace linnet {
struct OnnxRunOptions {
  int threads = 0;       // 0: all the process may use
  int64_t repeats = 1;   // runs; more than one for the time of a run
  bool profile = false;  // also the time of each node
};

struct OnnxRunReport {
  double seconds = 0;       // of a run, the median
  size_t memory_bytes = 0;  // all planned memory
  std::vector<std::pair<std::string, TensorType>> outputs;
  std::vector<Forward::NodeTime> nodes;
};

// `inputs` and `outputs`: safetensors files with a tensor per input and output of the network. Whole numbers must fit
// 32 bits; outputs are F32 or I32. User error naming a missing or unknown input.
OnnxRunReport run_onnx_file(
    OnnxNetwork& network, const std::string& inputs, const std::string& outputs, const OnnxRunOptions& options = {});

// ONNX's backend tests: folders with model.onnx and test_data_set_<n>/ of input_<i>.pb and output_<i>.pb.

struct OnnxTestResult {
  enum Outcome { kPass, kFail, kUnsupported };
  std::string name;  // of the folder
  std::string op;    // the operator it is about: that of its one node, or "several"
  Outcome outcome = kPass;
  std::string detail;  // why not
};

// Every test folder within `folder`, by name. User error if there is none.
std::vector<OnnxTestResult> run_onnx_tests(const std::string& folder);

// Lines "Add  5 passed, 1 failed, 0 unsupported" per tested operator, and the sums.
std::string onnx_test_table(const std::vector<OnnxTestResult>& results);
}  // namespace linnet
