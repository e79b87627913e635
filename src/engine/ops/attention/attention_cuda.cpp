// Attention by cuDNN's fused kernels: bf16 storage, or fp32 storage if the model asks for bf16 products (operands, o
// and gradients are then rounded to bf16 in the workspace). Our own kernels do the rest: packed rows, windows, a bias
// (cuDNN's deterministic backward pass has no gradient for one), causal attention from fewer queries than keys, strict
// fp32; and everything if cuDNN is absent, older than kLeastVersion, or has no deterministic kernel.
#include "engine/kernels/parallel.h"
#include "engine/kernels/random/philox.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/attention/attention_graph_cuda.h"

namespace linnet {
namespace {
// 9.15.1. Before it, with a number of keys that is no multiple of 128, the replayed backward pass can read outside of
// its memory (NVIDIA's release notes of cuDNN 9.15.1).
constexpr size_t kLeastVersion = 91501;

AttentionStrides dense_strides_of(const Shape& x) { return {x[1] * x[2], x[2]}; }

bool is_for_cudnn(const KernelQuery& query) {
  const auto& attrs = query.attrs<AttentionAttrs>();
  const Shape &q = query.in[0].shape, &k = query.in[1].shape;
  const int64_t size = q[2] / attrs.heads;
  const bool rounds = query.in[0].dtype == DType::kF32 && attrs.precision == Precision::kBf16;
  return (query.in[0].dtype == DType::kBF16 || rounds) && !attrs.has_starts && !attrs.has_bias && attrs.window == 0 &&
         size % 8 == 0 && size <= 128 && (!attrs.causal || q[1] == k[1]) && q[1] * k[1] > 1 && q.elements() > 0 &&
         k.elements() > 0;
}

AttentionProblem problem_of(const AttentionAttrs& attrs, const Shape& q, const Shape& k) {
  AttentionProblem p{.batch = q[0],
      .heads = attrs.heads,
      .kv_heads = attrs.kv_heads,
      .queries = q[1],
      .keys = k[1],
      .size = q[2] / attrs.heads,
      .scale = static_cast<float>(attrs.scale)};
  p.causal = attrs.causal, p.lengths = attrs.has_lengths;
  if (attrs.dropout > 0) {
    p.kept = 1 - dropout_threshold(attrs.dropout) / 65536.0;
    p.kept_scale = dropout_scale(attrs.dropout);
  }
  p.q = p.o = p.dq = dense_strides_of(q);
  p.k = p.v = p.dk = p.dv = dense_strides_of(k);
  return p;
}

// A plan of the problem: cuDNN's first kernel with at most `workspace` bytes. With `check_only`, nothing is compiled.
AttentionPlan& plan_of(
    CudaDevice& device, const AttentionProblem& problem, bool backward, bool check_only, size_t workspace = 0) {
  const std::string key = std::string("attention ") + (backward ? "backward " : "forward ") +
                          (check_only ? "check " : std::to_string(workspace) + " ") + problem.text();
  return device.prepared<AttentionPlan>(key, [&] {
    const CudnnTarget target = CudnnTarget::of(device);
    const auto limit = check_only ? std::nullopt : std::optional(workspace);
    return std::make_shared<AttentionPlan>(
        backward ? attention_backward_plan(problem, target, limit) : attention_forward_plan(problem, target, limit));
  });
}

// Strides are known only when the kernel runs, and cuDNN's workspace may depend on them: for separate q, k and v, and
// for the product of a fused projection.
std::array<AttentionProblem, 2> layouts_of(const AttentionAttrs& attrs, const Shape& q, const Shape& k) {
  AttentionProblem dense = problem_of(attrs, q, k), packed = dense;
  const bool itself = q[1] == k[1];
  const int64_t keys_row = (itself ? q[2] : 0) + 2 * k[2], query_row = itself ? keys_row : q[2];
  packed.q = packed.dq = {q[1] * query_row, query_row};
  packed.k = packed.v = packed.dk = packed.dv = {k[1] * keys_row, keys_row};
  return {dense, packed};
}

// Whether cuDNN has kernels for both passes. Both passes must be cuDNN's or neither, so that they have the same dropout
// mask. So the answer depends on nothing that differs between them.
bool supports(const KernelQuery& query) {
  auto& device = static_cast<CudaDevice&>(*query.device);
  if (!is_for_cudnn(query) || cudnn_version(device) < kLeastVersion) return false;
  for (const AttentionProblem& problem :
      layouts_of(query.attrs<AttentionAttrs>(), query.in[0].shape, query.in[1].shape))
    for (const bool backward : {false, true})
      if (plan_of(device, problem, backward, true).candidates == 0) return false;
  return true;
}

// The workspace before cuDNN's own, equal for planner and kernel.
struct Scratch {
  int64_t *seed, *offset;  // each aligned to 16 bytes
  int32_t *query_lengths, *key_lengths;
  float* sums;
  // bf16 copies of fp32 operands: q, k, v, o and then d_o, dq, dk, dv.
  uint16_t* copies[8];

  Scratch(Regions& pieces, const Shape& q, const Shape& k, int64_t heads, bool copied, bool backward)
      : seed(pieces.take<int64_t>(1)), offset(pieces.take<int64_t>(1)), query_lengths(pieces.take<int32_t>(q[0])),
        key_lengths(pieces.take<int32_t>(q[0])),
        sums(backward ? pieces.take<float>(q[0] * heads * q[1]) : nullptr), copies{} {
    if (!copied) return;
    const int64_t of_q = q.elements(), of_k = k.elements();
    const int64_t counts[] = {of_q, of_k, of_k, of_q, of_q, of_q, of_k, of_k};
    for (int i = 0; i < (backward ? 8 : 4); ++i) copies[i] = pieces.take<uint16_t>(counts[i]);
  }
};

size_t cudnn_workspace(CudaDevice& device, const AttentionAttrs& attrs, const Shape& q, const Shape& k, bool backward) {
  return max_of<size_t>(layouts_of(attrs, q, k),
      [&](const AttentionProblem& problem) { return plan_of(device, problem, backward, true).workspace; });
}

size_t workspace_of(const KernelQuery& query, bool backward) {
  const auto& attrs = query.attrs<AttentionAttrs>();
  const Shape &q = query.in[0].shape, &k = query.in[1].shape;
  Regions pieces(nullptr, 256);
  const Scratch scratch(pieces, q, k, attrs.heads, query.in[0].dtype == DType::kF32, backward);
  return pieces.size() + cudnn_workspace(static_cast<CudaDevice&>(*query.device), attrs, q, k, backward);
}
size_t workspace(const KernelQuery& query) { return workspace_of(query, false); }
size_t grad_workspace(const KernelQuery& query) { return workspace_of(query, true); }

class Run {
 public:
  Run(const KernelArgs& args, bool backward)
      : args_(args), attrs_(args.attrs<AttentionAttrs>()), device_(static_cast<CudaDevice&>(*args.device)),
        copied_(args.in[0].type.dtype == DType::kF32),
        problem_(problem_of(attrs_, args.in[0].shape(), args.in[1].shape())), pieces_(args.workspace, 256),
        scratch_(pieces_, args.in[0].shape(), args.in[1].shape(), attrs_.heads, copied_, backward) {}

  void forward() {
    location(args_.in[0], problem_.q), location(args_.in[1], problem_.k), location(args_.in[2], problem_.v);
    location(args_.out[0], problem_.o);
    const AttentionPlan& plan = compiled_plan(false);
    prepare(kAttentionFixed);
    add(plan.q, read(args_.in[0], 0));
    add(plan.k, read(args_.in[1], 1));
    add(plan.v, read(args_.in[2], 2));
    add(plan.o, written(args_.out[0], 3));
    add(plan.stats, args_.out[1].data);
    run(plan);
    zero_masked({masked(args_.out[0], 3, problem_.o, false)});
    finish(args_.out[0], 3);
  }

  void backward() {
    location(args_.in[0], problem_.q), location(args_.in[1], problem_.k), location(args_.in[2], problem_.v);
    location(args_.in[3], problem_.o);
    location(args_.out[0], problem_.dq), location(args_.out[1], problem_.dk), location(args_.out[2], problem_.dv);
    const AttentionPlan& plan = compiled_plan(true);
    prepare(kAttentionGradFixed);
    add(plan.q, read(args_.in[0], 0));
    add(plan.k, read(args_.in[1], 1));
    add(plan.v, read(args_.in[2], 2));
    add(plan.o, read(args_.in[3], 3));
    add(plan.d_o, read(args_.in[5], 4));
    add(plan.stats, args_.in[4].data);
    add(plan.sums, scratch_.sums);
    for (size_t i = 0; i < 3; ++i) add(i == 0 ? plan.dq : i == 1 ? plan.dk : plan.dv, written(args_.out[i], 5 + i));
    run(plan);
    zero_masked({masked(args_.out[0], 5, problem_.dq, false), masked(args_.out[1], 6, problem_.dk, true),
        masked(args_.out[2], 7, problem_.dv, true)});
    for (size_t i = 0; i < 3; ++i) finish(args_.out[i], 5 + i);
  }

 private:
  void location(const TensorView& x, AttentionStrides& strides) const {
    if (!copied_) strides = {x.strides[0], x.strides[1]};
  }
  void* read(const TensorView& x, size_t copy) const {
    if (!copied_) return x.data;
    pack_bf16(&device_, x, scratch_.copies[copy]);
    return scratch_.copies[copy];
  }
  void* written(const TensorView& x, size_t copy) const { return copied_ ? scratch_.copies[copy] : x.data; }
  void finish(const TensorView& x, size_t copy) const {
    if (copied_) unpack_bf16(&device_, scratch_.copies[copy], x);
  }

  void prepare(size_t fixed) {
    if (!attrs_.has_lengths && attrs_.dropout == 0) return;
    AttentionExtras extras{.batch = problem_.batch,
        .queries = static_cast<int32_t>(problem_.queries),
        .keys = static_cast<int32_t>(problem_.keys)};
    if (attrs_.dropout > 0) extras.random = args_.in.back().as<int32_t>();
    extras.site = attrs_.dropout_site, extras.seed = scratch_.seed, extras.offset = scratch_.offset;
    if (attrs_.has_lengths) {
      extras.lengths = lengths_ = args_.in[fixed].as<int32_t>();
      extras.query_lengths = scratch_.query_lengths, extras.key_lengths = scratch_.key_lengths;
    }
    prepare_attention(&device_, extras);
  }

  MaskedRows masked(const TensorView& x, size_t copy, AttentionStrides strides, bool of_keys) const {
    return {.data = written(x, copy),
        .length = x.shape()[1],
        .width = x.shape()[2],
        .sample = strides.sample,
        .row = strides.row,
        .of_keys = of_keys};
  }
  void zero_masked(std::initializer_list<MaskedRows> results) const {
    if (lengths_) zero_masked_rows(&device_, problem_.batch, lengths_, {results.begin(), results.size()});
  }

  const AttentionPlan& compiled_plan(bool backward) {
    const size_t workspace = cudnn_workspace(device_, attrs_, args_.in[0].shape(), args_.in[1].shape(), backward);
    const AttentionPlan& plan = plan_of(device_, problem_, backward, false, workspace);
    if (!plan.plan)
      fail_system("cuDNN refuses attention that it said it has (" + problem_.text() + "): " + plan.why +
                  "; LINNET_CUDNN=off does without cuDNN");
    return plan;
  }

  void add(CudnnValue value, void* data) {
    if (reinterpret_cast<uintptr_t>(data) % 16 != 0)
      fail_internal("cuDNN's attention was given memory that is not aligned to 16 bytes");
    memory_.emplace_back(value, data);
  }

  void run(const AttentionPlan& plan) {
    if (plan.key_lengths) add(plan.query_lengths, scratch_.query_lengths), add(plan.key_lengths, scratch_.key_lengths);
    if (plan.seed) add(plan.seed, scratch_.seed), add(plan.offset, scratch_.offset);
    plan.plan->run(device_, memory_, pieces_.rest());
  }

  const KernelArgs& args_;
  const AttentionAttrs& attrs_;
  CudaDevice& device_;
  bool copied_;
  AttentionProblem problem_;
  Regions pieces_;
  Scratch scratch_;
  const int32_t* lengths_ = nullptr;
  std::vector<std::pair<CudnnValue, void*>> memory_;
};

void run(const KernelArgs& args) { Run(args, false).forward(); }
void run_grad(const KernelArgs& args) { Run(args, true).backward(); }
}  // namespace

LINNET_KERNELS(attention_cudnn, {"cudnn", run, supports, workspace})
LINNET_KERNELS(attention_grad_cudnn, {"cudnn", run_grad, supports, grad_workspace})
}  // namespace linnet
