// A network read from an ONNX file as a module, used like models written in C++.
//
//   auto network = load_onnx("resnet18.onnx");
//   const ParameterLayout layout(*network);
//   layout.initialize_parameters(0, flat, pool);                       // the values in the file
//   Trace trace({.layout = &layout});
//   const Tensor x = trace.input("x", {DType::kF32, {8, 3, 224, 224}});
//   trace.graph().output("y", network->run({{"input", x}}).at("output"));
//
// Input sizes are bound by tracing; what depends on them alone (shapes, masks, positions) is computed then. Float
// initializers are trainable parameters of the same names, but for statistics and numbers that shape the computation.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>
#include "models/nn/forward.h"
#include "models/nn/module.h"
#include "onnx/call.h"
#include "onnx/file/model.h"

namespace linnet {
using TracedValues = std::map<std::string, TracedValue>;

class OnnxNetwork : public Module {
 public:
  // User error naming an unsupported operator and its node.
  OnnxNetwork(OnnxModel model, std::string file);

  const OnnxModel& model() const { return model_; }
  const std::string& file() const { return file_; }  // for messages
  // User error if there is nothing to train: no parameters, or quantized weights.
  void check_trainable() const;
  const std::vector<OnnxValueInfo>& inputs() const { return inputs_; }  // without parameters
  const std::vector<OnnxValueInfo>& outputs() const { return model_.graph.outputs; }
  bool is_parameter(const std::string& name) const { return parameters_.contains(name); }

  // A parameter in the file's type and layout. `values` are in the parameter's layout and must outlive the result.
  OnnxTensor trained_tensor(const OnnxTensor& tensor, const float* values) const;

  // Within a Trace: outputs by name. Floats are f32 tensors, token ids and integer outputs i32.
  std::map<std::string, Tensor> run(const std::map<std::string, Tensor>& inputs, const TracedValues& known = {});
  TracedValues trace(Graph& graph, const TracedValues& inputs);  // some values may be known

 private:
  void find_parameters();
  void find_filters();
  // Whether only 2D convolutions use it: [O, C, R, S] in the file, as a parameter [O, R, S, C], which the op needs.
  bool is_filters(const OnnxTensor& tensor) const { return tensor.dims.size() == 4 && filters_.contains(tensor.name); }
  void trace_nodes(Graph& graph, const std::vector<OnnxNode>& nodes, TracedValues& values);
  void trace_node(Graph& graph, const OnnxNode& node, TracedValues& values);
  static std::vector<TracedValue> run_operator(
      Graph& graph, const OnnxNode& node, int64_t version, std::vector<TracedValue> in, bool known);
  // In control_flow.cpp: nodes that contain graphs.
  std::vector<TracedValue> trace_control(Graph& graph, const OnnxNode& node, const TracedValues& values);
  std::vector<TracedValue> trace_if(Graph& graph, const OnnxNode& node, const TracedValues& values);
  std::vector<TracedValue> trace_loop(Graph& graph, const OnnxNode& node, const TracedValues& values);
  std::vector<TracedValue> trace_scan(Graph& graph, const OnnxNode& node, const TracedValues& values);
  // `arguments`: the graph's inputs, in order. `results`: how many it must give.
  std::vector<TracedValue> trace_body(Graph& graph, const OnnxNode& node, const char* name, const TracedValues& values,
      const std::vector<TracedValue>& arguments, size_t results);
  static TracedValue stacked(Graph& graph, const OnnxNode& node, const std::vector<TracedValue>& values, int64_t axis);
  TracedValue initial_value(const OnnxTensor& tensor) const;

  OnnxModel model_;
  std::string file_;
  std::vector<OnnxValueInfo> inputs_;
  std::deque<Parameter> own_;
  std::deque<SavedBuffer> buffers_;                     // running statistics of batch normalizations in training mode
  std::map<std::string, const Parameter*> parameters_;  // with buffers
  std::set<std::string> filters_;                       // only read as Conv's weight
  uint32_t position_ = 0;                               // of the node being traced, for messages
};

// Whether `path` names an ONNX file, or a folder of `linnet import` or `linnet export --onnx`.
bool is_onnx_path(const std::string& path);

// `path`: such a file or folder. `classes`: the number for a new last layer (below); 0: unchanged.
std::unique_ptr<OnnxNetwork> load_onnx(const std::string& path, int64_t classes = 0);

// Writes network.onnx and model.safetensors, its external data, so that other programs can read the model too.
void save_onnx_folder(const OnnxNetwork& network, const std::string& folder);

// The number of classes: outputs of the linear layer (Gemm, or MatMul with or without Add) that gives the only output.
// 0: the network does not end in such a layer, or its weight has other readers.
int64_t head_classes(const OnnxModel& model);
// Gives that layer, if any, so many outputs unless it has them: a weight drawn by its name, zeros as bias.
void replace_head(OnnxModel& model, int64_t classes);

// "; input ... is ..." if a shape differs from the sizes that the file declares, and what to do; else "".
std::string size_problem(const OnnxValueInfo& input, const Shape& given);

// Of a run on a file's arrays: `linnet onnx run`.
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
// 32 bits; outputs are F32 or I32. User error naming a missing, unknown or misshapen input.
OnnxRunReport run_onnx_file(
    OnnxNetwork& network, const std::string& inputs, const std::string& outputs, const OnnxRunOptions& options = {});

// Of one of ONNX's backend tests: a folder with model.onnx and test_data_set_<n>/ of input_<i>.pb and output_<i>.pb.
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
