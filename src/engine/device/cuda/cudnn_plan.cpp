// From a graph of operations to plans that run.
#include <algorithm>
#include "base/log.h"
#include "engine/device/cuda/cudnn_graph.h"
#include "engine/device/cuda/cudnn_library.h"

namespace linnet {
namespace {

struct Handle {
  Handle() { cudnn_check(cudnn().create(&raw), "opening the GPU"); }
  ~Handle() { cudnn().destroy(raw); }
  Handle(const Handle&) = delete;
  cudnnHandle_t raw = nullptr;
};

Handle& handle_of(CudaDevice& device) {
  return device.prepared<Handle>("cudnn", [&] {
    const cudaStream_t stream = device.stream();  // first: the handle is of the current GPU
    auto handle = std::make_shared<Handle>();
    cudnn_check(cudnn().set_stream(handle->raw, stream), "taking the stream");
    return handle;
  });
}

struct Opens {
  bool yes = true;
};

// How many elements the attribute has; below 0 when cuDNN does not say.
int64_t count_of(cudnnBackendDescriptor_t from, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) {
  int64_t count = 0;
  return cudnn().get_attribute(from, name, type, 0, &count, nullptr) == CUDNN_STATUS_SUCCESS ? count : -1;
}

struct Engine {
  int64_t index = -1;
  size_t workspace = 0;
  bool deterministic = true, tensor_cores = false;
};

Engine engine_of(const CudnnDescriptor& config) {
  CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.raw();
  int64_t count = 0;
  cudnn_check(
      cudnn().get_attribute(config.raw(), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw),
      "reading an engine");
  Engine found;
  cudnn().get_attribute(raw, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, &found.index);
  int64_t workspace = 0;
  if (cudnn().get_attribute(config.raw(), CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                            &workspace) == CUDNN_STATUS_SUCCESS)
    found.workspace = static_cast<size_t>(workspace);
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  count = 0;
  cudnn_check(cudnn().get_attribute(raw, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                    static_cast<int64_t>(notes.size()), &count, notes.data()),
              "reading an engine's notes");
  for (size_t i = 0; i < std::min(static_cast<size_t>(count), notes.size()); ++i)
    if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) found.deterministic = false;
    else if (notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE || notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
             notes[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)
      found.tensor_cores = true;
  return found;
}

}  // namespace

size_t cudnn_version(CudaDevice& device) {
  const size_t version = cudnn_version();
  if (version == 0) return 0;
  const Opens& opens = device.prepared<Opens>("cudnn opens", [&] {
    auto opens = std::make_shared<Opens>();
    try {
      handle_of(device);
    } catch (const Error& error) {
      log_warning(std::string(error.what()) + ": attention and convolutions are Linnet's own kernels");
      opens->yes = false;
    }
    return opens;
  });
  return opens.yes ? version : 0;
}

CudnnTarget CudnnTarget::of(CudaDevice& device) {
  const Handle& handle = handle_of(device);
  auto properties = std::make_shared<CudnnDescriptor>(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  properties->set(CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle.raw).finalize();
  return CudnnTarget(properties);
}

CudnnTarget CudnnTarget::described(const std::string& json) {
  auto properties = std::make_shared<CudnnDescriptor>(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  properties->set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, static_cast<int64_t>(json.size()),
                  json.data());
  properties->finalize();
  return CudnnTarget(properties);
}

void CudnnGraph::add_candidates(const CudnnDescriptor& graph, const CudnnTarget& target, cudnnBackendHeurMode_t mode,
                                std::vector<Candidate>& found, std::string* why) {
  CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode)
      .set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, target.properties());
  if (!heuristics.try_finalize(why)) return;
  const int64_t count = count_of(heuristics.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR);
  if (count <= 0) return;
  std::vector<CudnnDescriptor> configs;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < count; ++i) raw.push_back(configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).raw());
  int64_t got = 0;
  cudnn_check(cudnn().get_attribute(heuristics.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                    count, &got, raw.data()),
              "reading the heuristics");
  for (size_t i = 0; i < static_cast<size_t>(got); ++i) {
    const Engine engine = engine_of(configs[i]);
    if (engine.deterministic && (tensor_cores_ || !engine.tensor_cores))
      found.push_back({std::move(configs[i]), "engine " + std::to_string(engine.index), engine.workspace});
    else if (why) *why = "only kernels whose results differ from run to run, or are less precise";
  }
}

std::vector<CudnnGraph::Candidate> CudnnGraph::candidates(const CudnnTarget& target, std::string* why) {
  std::vector<cudnnBackendDescriptor_t> operations;
  for (const CudnnDescriptor& operation : operations_) operations.push_back(operation.raw());
  if (why) *why = "cuDNN has no kernel for it";
  if (!graph_) {
    CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(operations.size()),
              operations.data());
    if (!graph.try_finalize(why)) return {};
    graph_.emplace(std::move(graph));
  }
  std::vector<Candidate> found;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK})
    if (found.empty()) add_candidates(*graph_, target, mode, found, why);
  return found;
}

std::vector<std::shared_ptr<CudnnPlan>> CudnnGraph::plans(const CudnnTarget& target, size_t at_most, std::string* why,
                                                          size_t workspace) {
  std::vector<std::shared_ptr<CudnnPlan>> found;
  for (const Candidate& candidate : candidates(target, why)) {
    if (found.size() >= at_most) break;
    CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, candidate.config)
        .set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, target.properties());
    if (!plan.try_finalize(why)) continue;
    std::shared_ptr<CudnnPlan> made(new CudnnPlan(std::move(plan)));
    int64_t bytes = 0, one = 0;
    cudnn_check(cudnn().get_attribute(made->plan_.raw(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                      &one, &bytes),
                "reading a plan's workspace");
    made->workspace_ = static_cast<size_t>(bytes);
    if (made->workspace_ > workspace) {
      if (why) *why = "its kernels need more workspace than was reserved";
      continue;
    }
    made->name_ = candidate.name;
    made->numbers_ = numbers_;
    found.push_back(std::move(made));
  }
  return found;
}

std::shared_ptr<CudnnPlan> CudnnGraph::plan(const CudnnTarget& target, std::string* why, size_t workspace) {
  const auto found = plans(target, 1, why, workspace);
  return found.empty() ? nullptr : found.front();
}

void CudnnPlan::run(CudaDevice& device, const std::vector<std::pair<CudnnValue, void*>>& memory, std::byte* workspace) {
  std::vector<int64_t> ids;
  std::vector<void*> locations;
  for (const auto& [id, location] : memory) ids.push_back(id), locations.push_back(location);
  for (auto& [id, bytes] : numbers_) ids.push_back(id), locations.push_back(bytes.data());
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  void* const scratch = workspace;
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids)
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, static_cast<int64_t>(locations.size()),
           locations.data())
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &scratch)
      .finalize();
  cudnn_check(cudnn().execute(handle_of(device).raw, plan_.raw(), pack.raw()), "running a plan");
}

}  // namespace linnet
