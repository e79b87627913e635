// linear_cross_entropy in chunks of rows: a chunk's logits by cuBLASLt, replaced by the loss and the logits' gradient,
// then the products with it. dweight is summed in fp32, chunk after chunk.
#include "base/numbers.h"
#include "engine/device/cuda/cublaslt.h"
#include "engine/ops/cross_entropy/cross_entropy.h"

namespace linnet {
namespace {
constexpr size_t kLogitsBudget = size_t{256} << 20;
constexpr int64_t kRowStep = 128;  // rows of a chunk are a multiple of it: the tiles of matrix products

struct Classes {
  int64_t first, count;
};

// The logits have the storage type: with bf16 activations they are rounded before the softmax.
struct Sizes {
  int64_t rows, width, classes, stride, chunk;
  DType type;

  Sizes(const TensorType& hidden, const TensorType& weight, int64_t all_rows)
      : rows(all_rows), width(weight.shape[1]), classes(weight.shape[0]), type(hidden.dtype) {
    stride = round_up(classes, 8);
    const int64_t fitting = static_cast<int64_t>(kLogitsBudget / row_bytes()) / kRowStep * kRowStep;
    const int64_t most = std::max(fitting, kRowStep), chunks = std::max<int64_t>(ceil_div(rows, most), 1);
    chunk = std::min(rows, round_up(ceil_div(rows, chunks), kRowStep));  // of about one size
  }
  // Products whose sizes are no multiples of 8 use the matrix units' slow path (on an H200 GPT-2's 50257 classes took
  // four times as long as 50256): the last classes are separate products.
  std::vector<Classes> parts() const {
    const int64_t whole = classes / 8 * 8;
    std::vector<Classes> found;
    if (whole > 0) found.push_back({0, whole});
    if (whole < classes) found.push_back({whole, classes - whole});
    return found;
  }
  size_t row_bytes() const { return static_cast<size_t>(stride) * dtype_size(type); }
  size_t logits_bytes() const { return round_up(static_cast<size_t>(chunk) * row_bytes(), size_t{256}); }
  size_t losses_bytes() const { return round_up(bytes_for<float>(rows), size_t{256}); }
  size_t parts_bytes() const { return bytes_for<float>(column_parts(chunk) * classes); }
  size_t bytes(bool parts) const {
    return kLtWorkspace + logits_bytes() + losses_bytes() + (parts ? parts_bytes() : 0);
  }
};

// The operands of both ops, and the pieces of the workspace.
struct Call {
  CudaDevice& device;
  const LinearCrossEntropyAttrs& attrs;
  Sizes sizes;
  const std::byte *hidden, *weight;
  const int32_t* targets;
  std::byte *lt, *logits;
  float *losses, *parts;
  SoftmaxLoss loss;

  explicit Call(const KernelArgs& args)
      : device(static_cast<CudaDevice&>(*args.device)), attrs(args.attrs<LinearCrossEntropyAttrs>()),
        sizes(args.in[0].type, args.in[1].type, args.in[2].elements()), hidden(args.in[0].as<std::byte>()),
        weight(args.in[1].as<std::byte>()), targets(args.in[2].as<int32_t>()), lt(args.workspace),
        logits(lt + kLtWorkspace), losses(reinterpret_cast<float*>(logits + sizes.logits_bytes())),
        parts(reinterpret_cast<float*>(logits + sizes.logits_bytes() + sizes.losses_bytes())) {
    loss.width = sizes.classes, loss.stride = sizes.stride, loss.type = sizes.type, loss.logits = logits;
    loss.bias = attrs.bias ? args.in[3].as<float>() : nullptr;
    loss.smoothing = static_cast<float>(attrs.label_smoothing);
  }

  const void* hidden_at(int64_t row) const {
    return hidden + static_cast<size_t>(row * sizes.width) * dtype_size(sizes.type);
  }
  LtProduct product(int64_t m, int64_t n, int64_t k) const {
    LtProduct p;
    p.m = m, p.n = n, p.k = k;
    p.operand = p.result = sizes.type;
    p.tf32 = attrs.precision == Precision::kTf32, p.bf16 = attrs.precision == Precision::kBf16;
    return p;
  }

  const std::byte* weight_at(int64_t first) const {
    return weight + static_cast<size_t>(first * sizes.width) * dtype_size(sizes.type);
  }
  std::byte* logits_at(int64_t first) const { return logits + static_cast<size_t>(first) * dtype_size(sizes.type); }

  // logits = hidden weight^T of rows [from, from + count), then their losses and, with dloss, gradients.
  void rows(int64_t from, int64_t count, bool keep_losses) {
    for (const Classes& part : sizes.parts()) {
      LtProduct p = product(count, part.count, sizes.width);
      p.trans_b = true;
      p.lda = p.ldb = sizes.width, p.ldc = sizes.stride;
      lt_run(
          device, p, {.a = hidden_at(from), .b = weight_at(part.first), .d = logits_at(part.first), .workspace = lt});
    }
    loss.rows = count, loss.targets = targets + from, loss.losses = keep_losses ? losses + from : nullptr;
    softmax_loss(&device, loss);
  }

  // dweight += gradient^T hidden; start: what the first chunk adds to, or null. dbias, which may be null, is the sum of
  // the gradient's rows, which sum_bias() queues alone.
  void weight_gradient(int64_t from, int64_t count, const std::byte* start, std::byte* dweight, DType type,
      float* dbias, FunctionRef<void()> sum_bias) const {
    const bool together = dbias && sizes.parts().size() == 1;
    if (dbias && !together) sum_bias();
    for (const Classes& part : sizes.parts()) {
      const size_t at = static_cast<size_t>(part.first * sizes.width) * dtype_size(type);
      LtProduct p = product(part.count, sizes.width, count);
      p.trans_a = true, p.result = type;
      p.lda = sizes.stride, p.ldb = p.ldc = sizes.width;
      p.beta = from > 0 || start ? 1.0f : 0.0f;
      const std::byte* added = from > 0 ? dweight : start;
      const LtOperands o{.a = logits_at(part.first),
          .b = hidden_at(from),
          .c = added ? added + at : nullptr,
          .d = dweight + at,
          .row_sums = together ? dbias : nullptr,
          .workspace = lt};
      together ? lt_run_with_sums(device, p, o, sum_bias) : lt_run(device, p, o);
    }
  }

  // dhidden = gradient weight, perhaps over the hidden states. The few last classes come first, so that a small value
  // is rounded before the rest is added.
  void hidden_gradient(int64_t from, int64_t count, std::byte* dhidden) const {
    std::byte* const d = dhidden + static_cast<size_t>(from * sizes.width) * dtype_size(sizes.type);
    const std::vector<Classes> parts = sizes.parts();
    for (size_t i = parts.size(); i-- > 0;) {
      LtProduct p = product(count, sizes.width, parts[i].count);
      p.lda = sizes.stride, p.ldb = p.ldc = sizes.width;
      p.beta = i + 1 < parts.size() ? 1.0f : 0.0f;
      lt_run(
          device, p, {.a = logits_at(parts[i].first), .b = weight_at(parts[i].first), .c = d, .d = d, .workspace = lt});
    }
  }
};

size_t workspace(const KernelQuery& query) {
  return Sizes(query.in[0], query.in[1], query.in[2].shape.elements()).bytes(false);
}
size_t grad_workspace(const KernelQuery& query) {
  return Sizes(query.in[0], query.in[1], query.in[2].shape.elements())
      .bytes(query.attrs<LinearCrossEntropyAttrs>().bias);
}

bool supports(const KernelQuery& query) {
  return (query.in[0].dtype == DType::kF32 || query.in[0].dtype == DType::kBF16) &&
         query.in[0].dtype == query.in[1].dtype && query.in[2].shape.elements() > 0;
}

void run(const KernelArgs& args) {
  Call call(args);
  for (int64_t from = 0; from < call.sizes.rows; from += call.sizes.chunk)
    call.rows(from, std::min(call.sizes.chunk, call.sizes.rows - from), true);
  sum_numbers(&call.device, call.sizes.rows, call.losses, args.out[0].as<float>());
}

void run_grad(const KernelArgs& args) {
  Call call(args);
  const auto& attrs = call.attrs;
  const Sizes& s = call.sizes;
  call.loss.dloss = args.in[3 + attrs.bias].as<float>();
  const std::byte* start = attrs.accumulate ? args.in.back().as<std::byte>() : nullptr;
  for (int64_t from = 0; from < s.rows; from += s.chunk) {
    const int64_t count = std::min(s.chunk, s.rows - from);
    call.rows(from, count, attrs.loss);
    float* const dbias = attrs.bias ? args.out[1 + attrs.weight_gradient].as<float>() : nullptr;
    const auto sum_bias = [&] {
      sum_columns(&call.device, s.type, count, s.classes, s.stride, call.logits, call.parts, dbias, from > 0);
    };
    // A product cannot add to the row sums of earlier chunks.
    const bool together = attrs.weight_gradient && s.chunk == s.rows;
    if (dbias && !together) sum_bias();
    if (attrs.weight_gradient)
      call.weight_gradient(from, count, start, args.out[1].as<std::byte>(), args.out[1].type.dtype,
          together ? dbias : nullptr, sum_bias);
    call.hidden_gradient(from, count, args.out[0].as<std::byte>());  // last: it may write over the hidden states
  }
  if (attrs.loss) sum_numbers(&call.device, s.rows, call.losses, args.out.back().as<float>());
}
}  // namespace

LINNET_KERNELS(linear_cross_entropy_cuda, {"chunked", run, supports, workspace})
LINNET_KERNELS(linear_cross_entropy_grad_cuda, {"chunked", run_grad, supports, grad_workspace})
}  // namespace linnet
