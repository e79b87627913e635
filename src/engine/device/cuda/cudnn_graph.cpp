#include "engine/device/cuda/cudnn_graph.h"
#include <algorithm>
#include "base/log.h"
#include "base/process.h"
#include "engine/device/cuda/libraries.h"

namespace linnet {
namespace {
// The functions of libcudnn that Linnet calls, looked up at first use.
struct CudnnFunctions {
  OpenLibrary library{kCudnn};
  decltype(&::cudnnGetVersion) get_version = library("cudnnGetVersion");
  decltype(&::cudnnGetErrorString) error_string = library("cudnnGetErrorString");
  decltype(&::cudnnGetLastErrorString) last_error_string = library("cudnnGetLastErrorString");
  decltype(&::cudnnCreate) create = library("cudnnCreate");
  decltype(&::cudnnDestroy) destroy = library("cudnnDestroy");
  decltype(&::cudnnSetStream) set_stream = library("cudnnSetStream");
  decltype(&::cudnnBackendCreateDescriptor) create_descriptor = library("cudnnBackendCreateDescriptor");
  decltype(&::cudnnBackendDestroyDescriptor) destroy_descriptor = library("cudnnBackendDestroyDescriptor");
  decltype(&::cudnnBackendFinalize) finalize = library("cudnnBackendFinalize");
  decltype(&::cudnnBackendSetAttribute) set_attribute = library("cudnnBackendSetAttribute");
  decltype(&::cudnnBackendGetAttribute) get_attribute = library("cudnnBackendGetAttribute");
  decltype(&::cudnnBackendExecute) execute = library("cudnnBackendExecute");
};

const CudnnFunctions& cudnn() {  // Error(kSystem) if it is not found
  static const CudnnFunctions functions;
  return functions;
}

std::string cudnn_error(cudnnStatus_t status) {
  char message[1024] = "";
  cudnn().last_error_string(message, sizeof message);
  std::string text = cudnn().error_string(status);
  if (*message) text += std::string(": ") + message;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

void cudnn_check(cudnnStatus_t status, const char* doing) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  fail_system(std::string("cuDNN: ") + doing + ": " + cudnn_error(status));
}

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

// The number of elements of the attribute; below 0 if cuDNN does not say.
int64_t count_of(cudnnBackendDescriptor_t from, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) {
  int64_t count = 0;
  return cudnn().get_attribute(from, name, type, 0, &count, nullptr) == CUDNN_STATUS_SUCCESS ? count : -1;
}

struct Engine {
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

size_t cudnn_version() {
  if (switched_off("LINNET_CUDNN")) return 0;
  return has_cudnn() ? cudnn().get_version() : 0;
}

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  cudnn_check(cudnn().create_descriptor(type, &raw_), "making a descriptor");
}

CudnnDescriptor::~CudnnDescriptor() {
  if (raw_) cudnn().destroy_descriptor(raw_);
}

CudnnDescriptor& CudnnDescriptor::set(
    cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  const cudnnStatus_t status = cudnn().set_attribute(raw_, name, type, count, values);
  if (status != CUDNN_STATUS_SUCCESS) cudnn_check(status, ("setting attribute " + std::to_string(name)).c_str());
  return *this;
}

void CudnnDescriptor::finalize() { cudnn_check(cudnn().finalize(raw_), "describing an operation"); }

bool CudnnDescriptor::try_finalize(std::string* why) {
  const cudnnStatus_t status = cudnn().finalize(raw_);
  if (status == CUDNN_STATUS_SUCCESS) return true;
  if (why) *why = cudnn_error(status);
  return false;
}

CudnnGraph::Sizes CudnnGraph::dense_strides(const Sizes& sizes) {
  Sizes strides(sizes.size());
  int64_t step = 1;
  for (size_t i = sizes.size(); i-- > 0; step *= sizes[i]) strides[i] = step;
  return strides;
}

CudnnValue CudnnGraph::add_tensor(
    cudnnDataType_t type, const Sizes& sizes, const Sizes& strides, bool is_virtual, bool by_value) {
  CudnnDescriptor& d = tensors_.emplace_back(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const auto id = static_cast<CudnnValue>(tensors_.size());
  d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id)
      .set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t{16})
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, sizes)
      .set(CUDNN_ATTR_TENSOR_STRIDES, strides)
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual)
      .set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value)
      .finalize();
  return id;
}

CudnnValue CudnnGraph::tensor(cudnnDataType_t type, const Sizes& sizes, const Sizes& strides) {
  return add_tensor(type, sizes, strides, false, false);
}

CudnnValue CudnnGraph::between(cudnnDataType_t type, const Sizes& sizes, const Sizes& strides) {
  return add_tensor(type, sizes, strides.empty() ? dense_strides(sizes) : strides, true, false);
}

CudnnValue CudnnGraph::number(float value) {
  const Sizes ones(4, 1);
  numbers_.emplace_back(add_tensor(CUDNN_DATA_FLOAT, ones, ones, false, true), value);
  return numbers_.back().first;
}

void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, CudnnValue x, CudnnValue y, const Pointwise& options) {
  CudnnDescriptor& what = part(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  what.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, options.compute);
  if (options.axis >= 0) what.set(CUDNN_ATTR_POINTWISE_AXIS, options.axis);
  what.finalize();
  CudnnDescriptor& node = operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  node.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, of(x))
      .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, of(y));
  if (options.b) node.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, of(options.b));
  if (options.t) node.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, of(options.t));
  node.finalize();
}

CudnnValue CudnnGraph::pointwise(
    cudnnPointwiseMode_t mode, CudnnValue x, const Sizes& sizes, const Pointwise& options, cudnnDataType_t type) {
  const CudnnValue y = between(type, sizes);
  pointwise(mode, x, y, options);
  return y;
}

void CudnnGraph::matmul(CudnnValue a, CudnnValue b, CudnnValue c, const Overrides& overrides) {
  CudnnDescriptor& what = part(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  what.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  const double zero = 0;
  if (overrides.pad) what.set(CUDNN_ATTR_MATMUL_PADDING_VALUE, CUDNN_TYPE_DOUBLE, 1, &zero);
  what.finalize();
  CudnnDescriptor& node = operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  node.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, what)
      .set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, of(a))
      .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, of(b))
      .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, of(c));
  if (overrides.m) node.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, of(overrides.m));
  if (overrides.n) node.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, of(overrides.n));
  if (overrides.k) node.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, of(overrides.k));
  node.finalize();
}

void CudnnGraph::reduction(cudnnReduceTensorOp_t op, CudnnValue x, CudnnValue y) {
  CudnnDescriptor& what = part(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  what.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op)
      .set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .finalize();
  operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, what)
      .set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, of(x))
      .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, of(y))
      .finalize();
}

void CudnnGraph::random(double probability, CudnnValue seed, CudnnValue offset, CudnnValue y) {
  CudnnDescriptor& what = part(CUDNN_BACKEND_RNG_DESCRIPTOR);
  const cudnnRngDistribution_t distribution = CUDNN_RNG_DISTRIBUTION_BERNOULLI;
  what.set(CUDNN_ATTR_RNG_DISTRIBUTION, CUDNN_TYPE_RNG_DISTRIBUTION, 1, &distribution)
      .set(CUDNN_ATTR_RNG_BERNOULLI_DIST_PROBABILITY, CUDNN_TYPE_DOUBLE, 1, &probability)
      .finalize();
  operation(CUDNN_BACKEND_OPERATION_RNG_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_RNG_DESC, what)
      .set(CUDNN_ATTR_OPERATION_RNG_YDESC, of(y))
      .set(CUDNN_ATTR_OPERATION_RNG_SEED, of(seed))
      .set(CUDNN_ATTR_OPERATION_RNG_OFFSET_DESC, of(offset))
      .finalize();
}

void CudnnGraph::reshape(CudnnValue x, CudnnValue y) {
  operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, of(x))
      .set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, of(y))
      .finalize();
}

// cuDNN's names for the common parts of a convolution's three operations. x, w, y: image, filters, result.
struct CudnnGraph::ConvolutionNames {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t settings, x, w, y, alpha, beta;
};

void CudnnGraph::add_convolution(
    const ConvolutionNames& names, const Convolution& c, CudnnValue x, CudnnValue w, CudnnValue y) {
  constexpr float one = 1, zero = 0;  // floats: of a double cuDNN's kernels read the lower half, which is 0
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  CudnnDescriptor& what = part(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  what.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode)
      .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, static_cast<int64_t>(c.strides.size()))
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, c.before)
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, c.after)
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, c.strides)
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, c.dilations)
      .finalize();
  operation(names.operation)
      .set(names.settings, what)
      .set(names.x, of(x))
      .set(names.w, of(w))
      .set(names.y, of(y))
      .set(names.alpha, CUDNN_TYPE_FLOAT, 1, &one)
      .set(names.beta, CUDNN_TYPE_FLOAT, 1, &zero)
      .finalize();
}

void CudnnGraph::convolution(const Convolution& c, CudnnValue x, CudnnValue w, CudnnValue y) {
  add_convolution({CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
      c, x, w, y);
}

void CudnnGraph::convolution_input_gradient(const Convolution& c, CudnnValue dy, CudnnValue w, CudnnValue dx) {
  add_convolution({CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
      c, dx, w, dy);
}

void CudnnGraph::convolution_weight_gradient(const Convolution& c, CudnnValue x, CudnnValue dy, CudnnValue dw) {
  add_convolution(
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
      c, x, dw, dy);
}

size_t cudnn_version(CudaDevice& device) {
  const size_t version = cudnn_version();
  if (version == 0) return 0;
  const bool opens = device.prepared<bool>("cudnn opens", [&] {
    try {
      handle_of(device);
    } catch (const Error& error) {
      log_warning(std::string(error.what()) + ": attention and convolutions are Linnet's own kernels");
      return std::make_shared<bool>(false);
    }
    return std::make_shared<bool>(true);
  });
  return opens ? version : 0;
}

CudnnTarget CudnnTarget::of(CudaDevice& device) {
  const Handle& handle = handle_of(device);
  auto properties = std::make_shared<CudnnDescriptor>(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  properties->set(CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle.raw).finalize();
  return CudnnTarget(properties);
}

CudnnTarget CudnnTarget::described(const std::string& json) {
  auto properties = std::make_shared<CudnnDescriptor>(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  properties->set(
      CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, static_cast<int64_t>(json.size()), json.data());
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
      found.push_back({std::move(configs[i]), engine.workspace});
    else if (why) *why = "only kernels whose results differ from run to run, or are less precise";
  }
}

std::vector<CudnnGraph::Candidate> CudnnGraph::candidates(const CudnnTarget& target, std::string* why) {
  std::vector<cudnnBackendDescriptor_t> operations = mapped(operations_, &CudnnDescriptor::raw);
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

std::shared_ptr<CudnnPlan> CudnnGraph::plan(const CudnnTarget& target, std::string* why, size_t workspace) {
  for (const Candidate& candidate : candidates(target, why)) {
    CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, candidate.config)
        .set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, target.properties());
    if (!plan.try_finalize(why)) continue;
    std::shared_ptr<CudnnPlan> made(new CudnnPlan(std::move(plan)));
    int64_t bytes = 0, one = 0;
    cudnn_check(cudnn().get_attribute(
                    made->plan_.raw(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &one, &bytes),
        "reading a plan's workspace");
    made->workspace_ = static_cast<size_t>(bytes);
    if (made->workspace_ > workspace) {
      if (why) *why = "its kernels need more workspace than was reserved";
      continue;
    }
    made->numbers_ = numbers_;
    return made;
  }
  return nullptr;
}

void CudnnPlan::run(CudaDevice& device, const std::vector<std::pair<CudnnValue, void*>>& memory, std::byte* workspace) {
  std::vector<int64_t> ids;
  std::vector<void*> locations;
  for (const auto& [id, location] : memory) ids.push_back(id), locations.push_back(location);
  for (auto& [id, value] : numbers_) ids.push_back(id), locations.push_back(&value);
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
