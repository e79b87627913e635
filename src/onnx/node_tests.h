// ONNX's backend tests: folders with a model.onnx and test_data_set_<n>/ of input_<i>.pb and output_<i>.pb.
#pragma once
#include <string>
#include <vector>

namespace linnet {

struct OnnxTestResult {
  enum Outcome { kPass, kFail, kUnsupported };
  std::string name;  // of the folder
  std::string op;    // the operator it is about: that of its one node, or "several"
  Outcome outcome = kPass;
  std::string detail;  // why not
};

// Every folder within `folder` that holds a test, in the order of their names. User error when there is none.
std::vector<OnnxTestResult> run_onnx_tests(const std::string& folder);

// A line for each operator with tests, "Add  5 passed, 1 failed, 0 unsupported", and the sums.
std::string onnx_test_table(const std::vector<OnnxTestResult>& results);

}  // namespace linnet
