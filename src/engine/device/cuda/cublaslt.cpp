#include "engine/device/cuda/cublaslt.h"
#include <cublasLt.h>
#include <algorithm>
#include <sstream>
#include "base/fail.h"
#include "base/numbers.h"
#include "engine/device/cuda/libraries.h"
#include "engine/device/disk_cache.h"

namespace linnet {
namespace {
struct Functions {
  OpenLibrary library{kCublasLt};
  decltype(&::cublasLtCreate) create = library("cublasLtCreate");
  decltype(&::cublasLtDestroy) destroy = library("cublasLtDestroy");
  decltype(&::cublasLtGetVersion) version = library("cublasLtGetVersion");
  decltype(&::cublasLtGetStatusString) status_string = library("cublasLtGetStatusString");
  decltype(&::cublasLtMatmul) matmul = library("cublasLtMatmul");
  decltype(&::cublasLtMatmulDescCreate) desc_create = library("cublasLtMatmulDescCreate");
  decltype(&::cublasLtMatmulDescDestroy) desc_destroy = library("cublasLtMatmulDescDestroy");
  decltype(&::cublasLtMatmulDescSetAttribute) desc_set = library("cublasLtMatmulDescSetAttribute");
  decltype(&::cublasLtMatrixLayoutCreate) layout_create = library("cublasLtMatrixLayoutCreate");
  decltype(&::cublasLtMatrixLayoutDestroy) layout_destroy = library("cublasLtMatrixLayoutDestroy");
  decltype(&::cublasLtMatrixLayoutSetAttribute) layout_set = library("cublasLtMatrixLayoutSetAttribute");
  decltype(&::cublasLtMatmulPreferenceCreate) preference_create = library("cublasLtMatmulPreferenceCreate");
  decltype(&::cublasLtMatmulPreferenceDestroy) preference_destroy = library("cublasLtMatmulPreferenceDestroy");
  decltype(&::cublasLtMatmulPreferenceSetAttribute) preference_set = library("cublasLtMatmulPreferenceSetAttribute");
  decltype(&::cublasLtMatmulAlgoGetHeuristic) heuristic = library("cublasLtMatmulAlgoGetHeuristic");
  decltype(&::cublasLtMatmulAlgoCheck) check = library("cublasLtMatmulAlgoCheck");
  decltype(&::cublasLtMatmulAlgoConfigGetAttribute) config = library("cublasLtMatmulAlgoConfigGetAttribute");
};

const Functions& lt() {
  static const Functions functions;
  return functions;
}

void check(cublasStatus_t status, const std::string& doing) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail_system("cuBLASLt: " + doing + ": " + lt().status_string(status));
}

struct Handle {
  Handle() { check(lt().create(&raw), "opening the GPU"); }
  ~Handle() { lt().destroy(raw); }
  Handle(const Handle&) = delete;
  cublasLtHandle_t raw = nullptr;
};

Handle& handle_of(CudaDevice& device) {
  return device.prepared<Handle>("cublaslt", [&] {
    device.stream();  // the handle is of the current GPU
    return std::make_shared<Handle>();
  });
}

cudaDataType_t data_type(DType type) {
  if (type == DType::kF32) return CUDA_R_32F;
  if (type == DType::kBF16) return CUDA_R_16BF;
  fail_internal("cuBLASLt was given ", dtype_name(type));
}

cublasComputeType_t compute_type(const LtProduct& p) {
  if (!p.rounds()) return CUBLAS_COMPUTE_32F;
  return p.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F_FAST_16BF;
}

cublasLtEpilogue_t epilogue(const LtProduct& p) {
  switch (p.after) {
    case LtProduct::After::kNothing:
      // Sums of cuBLASLt's second operand, which is our first.
      if (p.row_sums) return CUBLASLT_EPILOGUE_BGRADB;
      return p.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    case LtProduct::After::kRelu: return p.bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case LtProduct::After::kGeluTanh:
      if (p.aux) return p.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
      return p.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    case LtProduct::After::kGeluTanhSlope: return CUBLASLT_EPILOGUE_DGELU;
  }
  fail_internal("an unknown epilogue");
}

class Layout {
 public:
  // Column-major: rows x columns with `ld` between columns.
  Layout(DType type, int64_t rows, int64_t columns, int64_t ld, int64_t batch, int64_t stride) {
    check(lt().layout_create(&raw_, data_type(type), static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), ld),
        "describing a matrix");
    if (batch == 1) return;
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(batch));
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
  }
  ~Layout() { lt().layout_destroy(raw_); }
  Layout(const Layout&) = delete;
  cublasLtMatrixLayout_t raw() const { return raw_; }

 private:
  template <class T> void set(cublasLtMatrixLayoutAttribute_t attribute, const T& value) {
    check(lt().layout_set(raw_, attribute, &value, sizeof value), "describing a matrix");
  }
  cublasLtMatrixLayout_t raw_ = nullptr;
};

// d = a b row-major is d^T = b^T a^T column-major in the same memory: cuBLASLt's first operand is our second.
class Problem {
 public:
  explicit Problem(const LtProduct& p)
      : product(p), first_(p.operand, p.trans_b ? p.k : p.n, p.trans_b ? p.n : p.k, p.ldb, p.batch, p.b_batch),
        second_(p.operand, p.trans_a ? p.m : p.k, p.trans_a ? p.k : p.m, p.lda, p.batch, p.a_batch),
        result_(p.result, p.n, p.m, p.ldc, p.batch, p.c_batch) {
    check(lt().desc_create(&desc_, compute_type(p), CUDA_R_32F), "describing a product");
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue(p));
    if (p.bias || p.row_sums) {
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(p.row_sums ? DType::kF32 : p.bias_type));
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, kSomewhere);
    }
    if (p.aux) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, kSomewhere);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.ldc);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, data_type(p.result));
      if (p.batch > 1) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, p.c_batch);
    }
  }
  ~Problem() { lt().desc_destroy(desc_); }
  Problem(const Problem&) = delete;

  void point(const LtOperands& o) {
    if (product.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, o.bias);
    if (product.row_sums) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, o.row_sums);
    if (product.aux) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, o.aux);
  }

  // The heuristics' proposals, best first, as bytes of cublasLtMatmulAlgo_t.
  std::vector<std::string> candidates(cublasLtHandle_t handle) const {
    cublasLtMatmulPreference_t preference = nullptr;
    check(lt().preference_create(&preference), "asking for algorithms");
    const std::shared_ptr<void> guard(
        preference, [](void* p) { lt().preference_destroy(static_cast<cublasLtMatmulPreference_t>(p)); });
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check(lt().preference_set(preference, attribute, &value, sizeof value), "asking for algorithms");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kLtWorkspace});
    // Parts of k are summed in the workspace in a fixed order; in-place sums would not be deterministic.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    // A slice may have any alignment.
    const LtProduct& p = product;
    const uint32_t a = alignment_of(p.lda, p.a_batch, p.operand, p.a_alignment);
    const uint32_t b = alignment_of(p.ldb, p.b_batch, p.operand, p.b_alignment);
    const uint32_t c = alignment_of(p.ldc, p.c_batch, p.result, p.c_alignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, b);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, a);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, c);
    cublasLtMatmulHeuristicResult_t results[kCandidates];
    int found = 0;
    const cublasStatus_t status = lt().heuristic(handle, desc_, first_.raw(), second_.raw(), result_.raw(),
        result_.raw(), preference, kCandidates, results, &found);
    std::vector<std::string> ways;
    if (status != CUBLAS_STATUS_SUCCESS) return ways;
    for (int i = 0; i < found; ++i)
      if (results[i].state == CUBLAS_STATUS_SUCCESS)
        ways.emplace_back(reinterpret_cast<const char*>(&results[i].algo), sizeof results[i].algo);
    return ways;
  }

  bool works(cublasLtHandle_t handle, const std::string& way) const {
    if (way.size() != sizeof(cublasLtMatmulAlgo_t)) return false;
    const auto algorithm = number_at<cublasLtMatmulAlgo_t>(way.data());
    cublasLtMatmulHeuristicResult_t result;
    return lt().check(handle, desc_, first_.raw(), second_.raw(), result_.raw(), result_.raw(), &algorithm, &result) ==
               CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= kLtWorkspace;
  }

  // The chosen algorithm by cuBLASLt's own numbers: "algorithm 66, tile 20, stages 13, k in 1 parts".
  std::string algorithm_text() const {
    const auto algorithm = number_at<cublasLtMatmulAlgo_t>(way.data());
    const auto number = [&](cublasLtMatmulAlgoConfigAttributes_t attribute) {
      int32_t value = 0;
      size_t written = 0;
      if (lt().config(&algorithm, attribute, &value, sizeof value, &written) != CUBLAS_STATUS_SUCCESS) value = -1;
      return std::to_string(value);
    };
    return "algorithm " + number(CUBLASLT_ALGO_CONFIG_ID) + ", tile " + number(CUBLASLT_ALGO_CONFIG_TILE_ID) +
           ", stages " + number(CUBLASLT_ALGO_CONFIG_STAGES_ID) + ", k in " + number(CUBLASLT_ALGO_CONFIG_SPLITK_NUM) +
           " parts";
  }

  cublasStatus_t run(cublasLtHandle_t handle, const std::string& way, const LtOperands& o, cudaStream_t stream) const {
    const auto algorithm = number_at<cublasLtMatmulAlgo_t>(way.data());
    return lt().matmul(handle, desc_, &product.alpha, o.b, first_.raw(), o.a, second_.raw(), &product.beta,
        product.beta != 0 ? o.c : o.d, result_.raw(), o.d, result_.raw(), &algorithm, o.workspace, kLtWorkspace,
        stream);
  }

  const LtProduct product;
  std::string way;     // chosen
  bool tuned = false;  // by timing or from disk

 private:
  static constexpr int kCandidates = 8;
  // The heuristics look at addresses of fused operands before there are any: an aligned one that nobody reads.
  static constexpr uintptr_t kSomewhere = 4096;

  static uint32_t alignment_of(int64_t ld, int64_t batch, DType type, int most) {
    const auto size = static_cast<int64_t>(dtype_size(type));
    int64_t alignment = most;
    while (alignment > size && (ld * size % alignment || batch * size % alignment)) alignment /= 2;
    return static_cast<uint32_t>(alignment);
  }
  template <class T> void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check(lt().desc_set(desc_, attribute, &value, sizeof value), "describing a product");
  }

  cublasLtMatmulDesc_t desc_ = nullptr;
  Layout first_, second_, result_;
};

Problem& problem_of(CudaDevice& device, const LtProduct& product) {
  return device.prepared<Problem>("lt " + product.text(), [&] { return std::make_shared<Problem>(product); });
}

// Memory for runs whose results are discarded.
struct Scratch {
  explicit Scratch(size_t bytes) {
    if (cudaMalloc(&data, bytes) != cudaSuccess) cudaGetLastError(), data = nullptr;
  }
  ~Scratch() { cudaFree(data); }
  Scratch(const Scratch&) = delete;
  void* data = nullptr;
};

void tune(CudaDevice& device, Problem& problem, const LtOperands& operands) {
  const LtProduct& p = problem.product;
  const cublasLtHandle_t handle = handle_of(device).raw;
  Tuning tuning{.kind = "matmul",
      .key = device.fingerprint() + " cuBLASLt " + std::to_string(lt().version()) + " " + p.text(),
      .candidates = [&] { return problem.candidates(handle); },
      .works = [&](const std::string& way) { return problem.works(handle, way); },
      .seconds = {}};
  LtOperands trial = operands;
  const bool in_place = p.beta != 0 && operands.c == operands.d;
  const int64_t span = (p.batch - 1) * p.c_batch + (p.m - 1) * p.ldc + p.n;
  std::unique_ptr<Scratch> scratch;
  tuning.seconds = [&](const std::string& way) {
    if (in_place && !scratch) scratch = std::make_unique<Scratch>(static_cast<size_t>(span) * dtype_size(p.result));
    if (in_place && !scratch->data) return -1.0;
    if (in_place) trial.d = scratch->data;
    constexpr int kRuns = 4;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    const double seconds = device.timed([&] {
      for (int i = 0; i < kRuns && status == CUBLAS_STATUS_SUCCESS; ++i)
        status = problem.run(handle, way, trial, device.stream());
    });
    return status == CUBLAS_STATUS_SUCCESS ? seconds / kRuns : -1.0;
  };
  problem.way = fastest(tuning);
  if (problem.way.empty()) problem.way = known_or_first(tuning);
  problem.tuned = true;
  if (!problem.way.empty()) device.chose("product " + p.text(), problem.algorithm_text());
}

LtProduct placed_at(LtProduct product, const LtOperands& operands) {
  product.a_alignment = lt_alignment({operands.a});
  product.b_alignment = lt_alignment({operands.b});
  product.c_alignment = lt_alignment({operands.d, product.beta != 0 ? operands.c : nullptr, operands.aux});
  if (product.bias || product.row_sums) product.bias_alignment = lt_alignment({operands.bias, operands.row_sums});
  return product;
}

cublasStatus_t queue(CudaDevice& device, const LtProduct& placed, const LtOperands& operands) {
  if (placed.m == 0 || placed.n == 0 || placed.batch == 0) return CUBLAS_STATUS_SUCCESS;
  Problem& problem = problem_of(device, placed);
  problem.point(operands);
  if (!problem.tuned && !device.recording()) tune(device, problem, operands);
  if (problem.way.empty() && !lt_supports(device, placed))
    fail_system("cuBLASLt has no deterministic algorithm for " + placed.text());
  return problem.run(handle_of(device).raw, problem.way, operands, device.stream());
}

struct SumsChoice {
  std::string way;
  bool timed = false;
};
constexpr const char *kTogether = "together", *kApart = "apart";
const std::vector<std::string> kSumWays{kTogether, kApart};
}  // namespace

std::string LtProduct::text() const {
  const int precision = bf16 ? 2 : tf32 ? 1 : 0;
  std::ostringstream text;
  for (const int64_t value : {batch, m, n, k, lda, ldb, ldc, a_batch, b_batch, c_batch}) text << value << ' ';
  text << (trans_a ? 't' : 'n') << (trans_b ? 't' : 'n') << ' ' << dtype_name(operand) << '>' << dtype_name(result)
       << " precision" << precision << ' ' << alpha << ' ' << beta << " after" << static_cast<int>(after);
  if (bias) text << " bias " << dtype_name(bias_type) << " at " << bias_alignment;
  if (row_sums) text << " row sums at " << bias_alignment;
  if (aux) text << " aux";
  text << " at " << a_alignment << ' ' << b_alignment << ' ' << c_alignment;
  return text.str();
}

int lt_alignment(std::initializer_list<const void*> addresses) {
  uintptr_t bits = 16;
  for (const void* address : addresses) bits |= reinterpret_cast<uintptr_t>(address);
  return static_cast<int>(bits & -bits);
}

bool lt_supports(CudaDevice& device, const LtProduct& product) {
  Problem& problem = problem_of(device, product);
  if (problem.way.empty()) {
    const auto ways = problem.candidates(handle_of(device).raw);
    if (ways.empty()) return false;
    problem.way = ways[0];
  }
  return true;
}

void lt_run(CudaDevice& device, const LtProduct& product, const LtOperands& operands) {
  const LtProduct placed = placed_at(product, operands);
  check(queue(device, placed, operands), "multiplying " + placed.text());
}

bool lt_try(CudaDevice& device, const LtProduct& product, const LtOperands& operands) {
  return queue(device, placed_at(product, operands), operands) == CUBLAS_STATUS_SUCCESS;
}

// An algorithm that splits k may be faster than any that also sums an operand.
void lt_run_with_sums(
    CudaDevice& device, const LtProduct& product, const LtOperands& operands, FunctionRef<void()> sum_apart) {
  LtProduct summing = product;
  summing.row_sums = true;
  LtOperands alone = operands;
  alone.row_sums = nullptr;
  const auto run = [&](const std::string& way) {
    if (way == kTogether && lt_try(device, summing, operands)) return;
    lt_run(device, product, alone);
    sum_apart();
  };
  // Fp32 operands may be rounded before they are summed, and an algorithm may write four sums at once.
  const LtProduct placed = placed_at(summing, operands);
  if (product.rounds() || placed.bias_alignment < 16 || !lt_supports(device, placed)) return run(kApart);
  auto& choice = device.prepared<SumsChoice>("sums " + placed.text(), [] { return std::make_shared<SumsChoice>(); });
  const bool in_place = product.beta != 0 && operands.c == operands.d;  // a second run would add once more
  if (choice.way.empty() || (!choice.timed && !device.recording() && !in_place)) {
    const Tuning tuning{.kind = "sums",
        .key = device.fingerprint() + " cuBLASLt " + std::to_string(lt().version()) + " " + placed.text(),
        .candidates = [] { return kSumWays; },
        .works = [](const std::string& way) { return std::ranges::count(kSumWays, way) > 0; },
        .seconds =
            [&](const std::string& way) {
              run(way);  // chooses its algorithm
              return device.timed([&] { run(way); });
            }};
    choice.timed = !device.recording() && !in_place;
    choice.way = choice.timed ? fastest(tuning) : known_or_first(tuning);
  }
  run(choice.way);
}
}  // namespace linnet
