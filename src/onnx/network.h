// A network read from an ONNX file, as a module: it is traced, run, trained and planned like models written in C++.
//
//   auto network = load_onnx("resnet18.onnx");
//   const ParameterLayout layout(*network);
//   layout.initialize_parameters(0, flat, pool);                       // the values in the file
//   Trace trace({.layout = &layout});
//   const Tensor x = trace.input("x", {DType::kF32, {8, 3, 224, 224}});
//   trace.graph().output("y", network->run({{"input", x}}).at("output"));
//
// The sizes of the inputs are bound when it is traced; what depends on them alone (shapes, masks, positions) is
// computed then. Initializers of floats are parameters that can be trained, but for statistics and numbers that shape
// the computation; their names are those in the file.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include "models/nn/module.h"
#include "onnx/call.h"
#include "onnx/file/model.h"

namespace linnet {

using TracedValues = std::map<std::string, TracedValue>;

class OnnxNetwork : public Module {
 public:
  // User error naming the operator and the node of one that is not there.
  OnnxNetwork(OnnxModel model, std::string file);

  const OnnxModel& model() const { return model_; }
  const std::string& file() const { return file_; }  // for messages
  // User error of one line where there is nothing to train: no parameters, or weights that are quantized.
  void check_trainable() const;
  // Those that are no parameters.
  const std::vector<OnnxValueInfo>& inputs() const { return inputs_; }
  const std::vector<OnnxValueInfo>& outputs() const { return model_.graph.outputs; }
  bool is_parameter(const std::string& name) const { return parameters_.contains(name); }

  // A parameter of the file with other values, in its own type and layout. `values`, which lie as the parameter does,
  // must outlive the result.
  OnnxTensor trained_tensor(const OnnxTensor& tensor, const float* values) const;

  // Within a Trace: outputs by name. Floats are f32 tensors, token ids i32. Integer outputs are i32.
  std::map<std::string, Tensor> run(const std::map<std::string, Tensor>& inputs, const TracedValues& known = {});
  // The same with values that may be known while tracing.
  TracedValues trace(Graph& graph, const TracedValues& inputs);

 private:
  void check_operators(const std::vector<OnnxNode>& nodes) const;
  const OnnxFunction* find_function(const OnnxNode& node) const;
  void find_parameters();
  void find_filters();
  // Whether a parameter is of two-dimensional convolutions alone: [O, C, R, S] in the file, [O, R, S, C] as a
  // parameter, which is how the op wants it.
  bool is_filters(const OnnxTensor& tensor) const { return tensor.dims.size() == 4 && filters_.contains(tensor.name); }
  void trace_nodes(Graph& graph, const std::vector<OnnxNode>& nodes, TracedValues& values);
  void trace_node(Graph& graph, const OnnxNode& node, TracedValues& values);
  static std::vector<TracedValue> run_operator(Graph& graph, const OnnxNode& node, int64_t version,
                                               std::vector<TracedValue> in, bool known);
  // control_flow.cpp: nodes that have graphs within.
  std::vector<TracedValue> trace_control(Graph& graph, const OnnxNode& node, const TracedValues& values);
  std::vector<TracedValue> trace_if(Graph& graph, const OnnxNode& node, const TracedValues& values);
  std::vector<TracedValue> trace_loop(Graph& graph, const OnnxNode& node, const TracedValues& values);
  std::vector<TracedValue> trace_scan(Graph& graph, const OnnxNode& node, const TracedValues& values);
  // `arguments`: of the graph's inputs, in their order.
  std::vector<TracedValue> trace_body(Graph& graph, const OnnxNode& node, const char* name, const TracedValues& values,
                                      const std::vector<TracedValue>& arguments);
  static TracedValue stacked(Graph& graph, const OnnxNode& node, const std::vector<TracedValue>& values, int64_t axis);
  std::vector<TracedValue> trace_function(Graph& graph, const OnnxNode& node, const OnnxFunction& function,
                                          const TracedValues& values);
  TracedValue initial_value(Graph& graph, const OnnxTensor& tensor) const;

  OnnxModel model_;
  std::string file_;
  std::vector<OnnxValueInfo> inputs_;
  std::deque<Parameter> own_;
  std::map<std::string, const Parameter*> parameters_;
  std::set<std::string> filters_;  // names of tensors that only Conv reads, as its weight
  uint32_t position_ = 0;          // of the node being traced, for messages
  int depth_ = 0;                  // of functions within functions
};

// Whether `path` is an ONNX file, by its name, or a folder that `linnet import` or `linnet export --onnx` wrote.
bool is_onnx_path(const std::string& path);

// `path`: an ONNX file or such a folder. `classes`: a classifier of another number gets a new
// last layer (below); 0: it stays as it is.
std::unique_ptr<OnnxNetwork> load_onnx(const std::string& path, int64_t classes = 0);

// Writes a folder with the network (network.onnx) and its parameters (model.safetensors, which network.onnx refers to
// as its external data, so that both together are an ONNX model for other programs too).
void save_onnx_folder(const OnnxNetwork& network, const std::string& folder);

// The last layer of a classifier that was read from an ONNX file, for other classes than the file's.

// How many classes the network tells apart: the outputs of the linear layer (Gemm, or MatMul with or without Add) that
// gives its only output. 0: it does not end in such a layer, whose weight nothing else reads.
int64_t head_classes(const OnnxModel& model);
// Gives that layer so many outputs: a weight drawn by its name, a bias of zeros. Of a network that has as many, or ends
// otherwise, nothing changes.
void replace_head(OnnxModel& model, int64_t classes);

}  // namespace linnet
