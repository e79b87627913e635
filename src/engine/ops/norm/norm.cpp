#include "engine/ops/norm/norm.h"
#include <cmath>
#include <utility>
#include "engine/kernels/norm/norm.h"
#include "engine/kernels/random/philox.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {
// Of mean and rstd.
TensorType row_type(const TensorType& x) { return {full_type(x.dtype), with_size(x.shape, -1, 1)}; }
TensorType parameter_type(const TensorType& x) { return {full_type(x.dtype), {x.shape[-1]}}; }

void expect_norm_parameters(const LayerNormAttrs& attrs, const TensorType& x, std::span<const TensorType> parameters) {
  for (size_t i = 0; i < attrs.parameters(); ++i)
    expect(parameters[i] == parameter_type(x), "got ", x, " with ", (i == 0 && attrs.has_weight ? "weight " : "bias "),
        parameters[i]);
}

std::vector<TensorType> infer_layer_norm(const InferArgs& args) {
  const auto& attrs = args.attrs.as<LayerNormAttrs>();
  expect_inputs(args, 1 + attrs.parameters());
  const TensorType& x = args.in[0];
  expect(x.shape.rank() >= 1 && is_float(x.dtype), "got ", x);
  expect_norm_parameters(attrs, x, args.in.subspan(1));
  return {x, row_type(x), row_type(x)};
}

void add_parameter_gradients(const LayerNormAttrs& attrs, const TensorType& x, std::vector<TensorType>& out) {
  const TensorType parameter = parameter_type(x);
  const auto rows = x.shape.elements(0, x.shape.rank() - 1), count = static_cast<int64_t>(attrs.parameters());
  if (attrs.in_parts) out.push_back({parameter.dtype, {norm_part_count(rows), count, x.shape[-1]}});
  else out.resize(out.size() + attrs.parameters(), parameter);
}

std::vector<TensorType> infer_layer_norm_grad(const InferArgs& args) {
  const auto& attrs = args.attrs.as<LayerNormAttrs>();
  expect_inputs(args, 4u + attrs.has_weight);
  const TensorType& x = args.in[1];
  expect(args.in[0] == x, "got ", args.in[0], " and ", x);
  std::vector<TensorType> out{x};
  add_parameter_gradients(attrs, x, out);
  return out;
}

std::vector<TensorType> infer_norm_sums(const InferArgs& args) {
  std::vector<TensorType> out;
  for (const TensorType& parts : args.in) {
    expect(parts.shape.rank() == 3 && is_float(parts.dtype), "got ", parts, ", expected [parts, parameters, width]");
    out.resize(out.size() + static_cast<size_t>(parts.shape[1]), {parts.dtype, {parts.shape[2]}});
  }
  return out;
}

std::vector<Tensor> layer_norm_gradient(const GradientArgs& args) {
  const Tensor weight = args.attrs<LayerNormAttrs>().has_weight ? args.in[1] : Tensor{};
  return args.add(kLayerNormGrad, with_defined({args.out_grad[0], args.in[0], args.out[1], args.out[2]}, {weight}));
}

std::vector<Tensor> decompose_layer_norm(const DecomposeArgs& args) {
  const auto& attrs = args.attrs<LayerNormAttrs>();
  const Tensor x = args.in[0];
  const Shape row = with_size(x.shape(), -1, 1);
  const double scale = 1.0 / static_cast<double>(x.dim(-1));
  const Tensor mean = sum_to(x, row) * (attrs.centered ? scale : 0.0);
  const Tensor centered = attrs.centered ? x - mean : x;
  const Tensor rstd = rsqrt(sum_to(square(centered), row) * scale + attrs.epsilon);
  Tensor y = centered * rstd;
  if (attrs.has_weight) y = y * args.in[1];
  if (attrs.has_bias) y = y + args.in.back();
  return {y, mean, rstd};
}

void expect_dropout(const InferArgs& args, const ResidualNormAttrs& attrs) {
  if (attrs.probability == 0) return;
  expect(attrs.probability > 0 && attrs.probability < 1, "got probability ", attrs.probability, ", expected [0, 1)");
  expect_random(args.in.back());
}

std::vector<TensorType> infer_residual_norm(const InferArgs& args) {
  const auto& attrs = args.attrs.as<ResidualNormAttrs>();
  expect_inputs(args, 2 + attrs.norm.parameters() + (attrs.probability > 0));
  const TensorType& x = args.in[0];
  expect(x.shape.rank() >= 1 && is_float(x.dtype) && args.in[1] == x, "got ", x, " and ", args.in[1]);
  expect_norm_parameters(attrs.norm, x, args.in.subspan(2));
  expect_dropout(args, attrs);
  return {x, x, row_type(x), row_type(x)};
}

std::vector<TensorType> infer_residual_norm_grad(const InferArgs& args) {
  const auto& attrs = args.attrs.as<ResidualNormAttrs>();
  expect_inputs(args, 4u + attrs.norm.has_weight + attrs.dsum + (attrs.probability > 0));
  const TensorType& sum = args.in[1];
  for (const size_t i : {size_t{0}, attrs.dsum ? attrs.dsum_input() : size_t{0}})
    expect(args.in[i] == sum, "got ", args.in[i], " and ", sum);
  expect_dropout(args, attrs);
  std::vector<TensorType> out{sum};
  add_parameter_gradients(attrs.norm, sum, out);
  if (attrs.probability > 0) out.push_back(sum);
  return out;
}

Tensor dropped(Tensor x, Tensor random, const ResidualNormAttrs& attrs, SourceLine where) {
  return attrs.probability > 0 ? dropout(At(x, where), random, attrs.probability, attrs.site) : x;
}

std::vector<Tensor> residual_norm_gradient(const GradientArgs& args) {
  ResidualNormAttrs attrs = args.attrs<ResidualNormAttrs>();
  const Tensor random = args.in.back(), dsum = args.out_grad[0], dy = args.out_grad[1];
  std::vector<Tensor> gradients(args.in.size());
  if (!dy.defined()) {
    gradients[0] = dsum;
    gradients[1] = dropped(dsum, random, attrs, args.node.where);
    return gradients;
  }
  attrs.dsum = dsum.defined();
  const bool drops = attrs.probability > 0;
  const auto out = args.add(kResidualNormGrad,
      with_defined({dy, args.out[0], args.out[2], args.out[3]},
          {attrs.norm.has_weight ? args.in[2] : Tensor{}, dsum, drops ? random : Tensor{}}),
      attrs);
  gradients[0] = out[0], gradients[1] = drops ? out.back() : out[0];
  for (size_t i = 1; i <= attrs.norm.parameters(); ++i) gradients[i + 1] = out[i];
  return gradients;
}

std::vector<Tensor> decompose_residual_norm(const DecomposeArgs& args) {
  const auto& attrs = args.attrs<ResidualNormAttrs>();
  const Tensor sum = args.in[0] + dropped(args.in[1], args.in.back(), attrs, args.node.where);
  const std::vector<Tensor> in = with_more({sum}, args.in.subspan(2, attrs.norm.parameters()));
  const auto norm = args.graph.add(kLayerNorm, in, attrs.norm, args.node.where);
  return {sum, norm[0], norm[1], norm[2]};
}

// dx and df are written elementwise after the last read of dy, sum and dsum.
bool grad_may_overwrite(const Node& node, int output, int input) {
  const auto& attrs = node.attrs.as<ResidualNormAttrs>();
  const bool is_df = attrs.probability > 0 && output == static_cast<int>(node.out.size()) - 1;
  return (output == 0 || is_df) && (input < 2 || (attrs.dsum && input == static_cast<int>(attrs.dsum_input())));
}

// The sum's gradient from elsewhere and f's gradient are further operands and results.
StorageRule residual_norm_grad_storage(const Node& node) {
  const auto& attrs = node.attrs.as<ResidualNormAttrs>();
  StorageRule rule{.in = std::vector<Storage>(node.in.size(), Storage::kF32),
      .out = std::vector<Storage>(node.out.size(), Storage::kF32)};
  rule.in[0] = rule.in[1] = rule.out[0] = Storage::kReduced;
  if (attrs.dsum) rule.in[attrs.dsum_input()] = Storage::kReduced;
  if (attrs.probability > 0) rule.out.back() = Storage::kReduced;
  return rule;
}

// "residual_norm+dropout": the name includes addition and norm.
std::string residual_norm_label(const Node& node) {
  const bool drops = node.attrs.as<ResidualNormAttrs>().probability > 0;
  return std::string(node.op->name) + (drops ? "+dropout" : "");
}

ResidualDropout dropout_of(const NormDropout& dropout) {
  if (dropout.probability == 0) return {};
  return {dropout.probability, dropout_key(dropout.random, dropout.site), dropout.rows_per_sample};
}

double mask(const ResidualDropout& dropout, int64_t row, int64_t width, int64_t column) {
  if (dropout.p == 0) return 1;
  const int64_t index = row % dropout.rows_per_sample * width + column;
  const auto sample = static_cast<uint32_t>(row / dropout.rows_per_sample);
  return dropout_keeps(dropout.key, index, kDenseDropout, 0, sample, dropout.p) ? dropout_scale(dropout.p) : 0.0;
}

template <bool kResidual> void run_norm_reference(const KernelArgs& args) {
  const NormOperands<kResidual> o(args);
  const ResidualDropout dropout = dropout_of(o.dropout);
  for_float(o.x.type.dtype, [&]<class T>() {
    const T *weight = elements_of<T>(o.weight), *bias = elements_of<T>(o.bias);
    for (int64_t r = 0; r < o.rows; ++r) {
      const T* x = o.x.template as<T>() + r * o.width;
      if constexpr (kResidual) {
        const T* f = o.f->template as<T>() + r * o.width;
        T* sum = o.sum->template as<T>() + r * o.width;
        for (int64_t j = 0; j < o.width; ++j) {
          const double scale = mask(dropout, r, o.width, j);
          sum[j] = static_cast<T>(x[j] + (scale == 0 ? 0 : f[j] * scale));
        }
        x = sum;
      }
      T* y = o.y.template as<T>() + r * o.width;
      double mean = 0, variance = 0;
      for (int64_t j = 0; o.attrs.norm.centered && j < o.width; ++j) mean += x[j];
      mean /= static_cast<double>(o.width);
      for (int64_t j = 0; j < o.width; ++j) variance += (x[j] - mean) * (x[j] - mean);
      const double rstd = 1 / std::sqrt(variance / static_cast<double>(o.width) + o.attrs.norm.epsilon);
      for (int64_t j = 0; j < o.width; ++j)
        y[j] = static_cast<T>((x[j] - mean) * rstd * (weight ? weight[j] : T(1)) + (bias ? bias[j] : T(0)));
      o.mean.template as<T>()[r] = static_cast<T>(mean);
      o.rstd.template as<T>()[r] = static_cast<T>(rstd);
    }
  });
}

// The formulas are those of engine/kernels/norm/norm.h.
template <bool kResidual> void run_norm_grad_reference(const KernelArgs& args) {
  const NormGradOperands<kResidual> o(args);
  const ResidualDropout dropout = dropout_of(o.dropout);
  for_float(o.dx.type.dtype, [&]<class T>() {
    const T *weight = elements_of<T>(o.weight), *dsum = elements_of<T>(o.dsum);
    T *dweight = elements_of<T>(o.dweight), *dbias = elements_of<T>(o.dbias), *df = elements_of<T>(o.df);
    for (T* sums : {dweight, dbias})
      if (sums) std::fill_n(sums, o.width, T(0));
    if (o.parts) std::fill_n(o.parts->template as<T>(), o.parts->elements(), T(0));
    for (int64_t r = 0; r < o.rows; ++r) {
      if (o.parts) {
        const int64_t part = r / norm_rows_per_part(o.rows);
        T* next = o.parts->template as<T>() + part * static_cast<int64_t>(o.attrs.norm.parameters()) * o.width;
        if (o.attrs.norm.has_weight) dweight = std::exchange(next, next + o.width);
        if (o.attrs.norm.has_bias) dbias = next;
      }
      const T *dy = o.dy.template as<T>() + r * o.width, *x = o.x.template as<T>() + r * o.width;
      T* dx = o.dx.template as<T>() + r * o.width;
      const double mean = o.mean.template as<T>()[r], rstd = o.rstd.template as<T>()[r];
      const auto slope = [&](int64_t j) { return static_cast<double>(dy[j]) * (weight ? weight[j] : T(1)); };
      double sum_g = 0, sum_gn = 0;
      for (int64_t j = 0; j < o.width; ++j) {
        const double normal = (x[j] - mean) * rstd;
        if (o.attrs.norm.centered) sum_g += slope(j);
        sum_gn += slope(j) * normal;
        if (dweight) dweight[j] += static_cast<T>(dy[j] * normal);
        if (dbias) dbias[j] += dy[j];
      }
      for (int64_t j = 0; j < o.width; ++j) {
        const double normal = (x[j] - mean) * rstd;
        double d = rstd * (slope(j) - (sum_g + normal * sum_gn) / static_cast<double>(o.width));
        if (dsum) d += static_cast<double>(dsum[r * o.width + j]);
        dx[j] = static_cast<T>(d);
        if (!df) continue;
        const double scale = mask(dropout, r, o.width, j);
        df[r * o.width + j] = static_cast<T>(scale == 0 ? 0 : d * scale);
      }
    }
  });
}

void run_norm_sums_reference(const KernelArgs& args) {
  for_float(args.out[0].type.dtype, [&]<class T>() {
    auto out = args.out.begin();
    for (const TensorView& parts : args.in) {  // [P, K, D]
      const int64_t width = parts.shape()[2], all = parts.shape()[1] * width;
      for (int64_t first = 0; first < all; first += width, ++out)
        for (int64_t j = 0; j < width; ++j)
          out->as<T>()[j] =
              sum_of<T>(parts.shape()[0], [&](int64_t part) { return parts.as<T>()[part * all + first + j]; });
    }
  });
}

template <bool kResidual> void run_norm(const KernelArgs& args) {
  const NormOperands<kResidual> o(args);
  RowNormForward call{.rows = o.rows,
      .width = o.width,
      .x = stored(o.x),
      .weight = elements_of<float>(o.weight),
      .bias = elements_of<float>(o.bias),
      .epsilon = static_cast<float>(o.attrs.norm.epsilon),
      .dropout = dropout_of(o.dropout),
      .y = mutable_stored(o.y),
      .mean = o.mean.template as<float>(),
      .rstd = o.rstd.template as<float>(),
      .centered = o.attrs.norm.centered};
  if (kResidual) call.f = stored(*o.f), call.sum = mutable_stored(*o.sum);
  row_norm_forward(call, args.pool);
}

template <bool kResidual> bool supports_norm_grad(const KernelQuery& query) {
  return !norm_attrs<kResidual>(query).norm.in_parts && f32_or_all_reduced(query);
}

size_t norm_grad_workspace(const KernelQuery& query) {
  return row_norm_backward_workspace(query.in[3].shape.elements(), query.in[0].shape[-1]);
}

template <bool kResidual> void run_norm_grad(const KernelArgs& args) {
  const NormGradOperands<kResidual> o(args);
  RowNormBackward call{.rows = o.rows,
      .width = o.width,
      .dy = stored(o.dy),
      .sum = stored(o.x),
      .weight = elements_of<float>(o.weight),
      .mean = o.mean.template as<float>(),
      .rstd = o.rstd.template as<float>(),
      .dropout = dropout_of(o.dropout),
      .dx = mutable_stored(o.dx),
      .dweight = elements_of<float>(o.dweight),
      .dbias = elements_of<float>(o.dbias),
      .centered = o.attrs.norm.centered};
  if (o.dsum) call.dsum = stored(*o.dsum);
  if (o.df) call.df = mutable_stored(*o.df);
  row_norm_backward(call, args.workspace, args.pool);
}

std::vector<TensorType> infer_batch_norm(const InferArgs& args) {
  const bool residual = args.attrs.as<BatchNormAttrs>().residual;
  expect_inputs(args, residual ? 4 : 3);
  const TensorType &x = args.in[0], &weight = args.in[1], &bias = args.in[2];
  const std::string got = "got " + x.text() + ", weight " + weight.text() + " and bias " + bias.text();
  expect(is_float(x.dtype) && x.shape.rank() >= 1, got, ", expected [..., channels] of a float type");
  const TensorType channels{full_type(x.dtype), {x.shape[-1]}};
  expect(weight == channels && bias == channels, got, ", expected ", channels, " for both");
  expect(!residual || args.in[3] == x, got, ", the residual differs from x");
  expect(x.shape.elements() > 0, got, ", there is nothing to take the mean of");
  return {x, channels, channels};
}

std::vector<TensorType> infer_batch_norm_grad(const InferArgs& args) {
  expect_inputs(args, args.attrs.as<BatchNormAttrs>().relu ? 6 : 5);
  return {args.in[1], args.in[2], args.in[2]};
}

std::vector<Tensor> batch_norm_gradient(const GradientArgs& args) {
  const auto& attrs = args.attrs<BatchNormAttrs>();
  if (attrs.residual || attrs.relu) fail_internal("batch_norm: the gradient of a fused one");
  if (!args.out_grad[0].defined()) return {{}, {}, {}};
  return args.add(kBatchNormGrad, {args.out_grad[0], args.in[0], args.in[1], args.out[1], args.out[2]});
}

std::vector<Tensor> decompose_batch_norm(const DecomposeArgs& args) {
  const Tensor x = args.in[0], weight = args.in[1], bias = args.in[2];
  const double share = static_cast<double>(weight.shape().elements()) / static_cast<double>(x.shape().elements());
  const Tensor mean = sum_to(x, weight.shape()) * share, centered = x - mean;
  const Tensor variance = sum_to(square(centered), weight.shape()) * share;
  const auto& attrs = args.attrs<BatchNormAttrs>();
  Tensor y = centered * (rsqrt(variance + attrs.epsilon) * weight) + bias;
  if (attrs.residual) y = y + args.in[3];
  return {attrs.relu ? relu(y) : y, mean, variance};
}

struct BatchNormSizes {
  BatchNormSizes(const Shape& x, const KernelArgs& args)
      : channels(x[-1]), rows(x.elements() / channels), epsilon(args.attrs<BatchNormAttrs>().epsilon) {}
  int64_t channels, rows;
  double epsilon;
};

void run_batch_norm_reference(const KernelArgs& args) {
  const BatchNormSizes s(args.in[0].shape(), args);
  for_float(args.in[0].type.dtype, [&]<class T>() {
    const T *x = args.in[0].as<T>(), *weight = args.in[1].as<T>(), *bias = args.in[2].as<T>();
    const auto& attrs = args.attrs<BatchNormAttrs>();
    for (int64_t c = 0; c < s.channels; ++c) {
      double mean = 0, variance = 0;
      for (int64_t r = 0; r < s.rows; ++r) mean += x[r * s.channels + c];
      mean /= static_cast<double>(s.rows);
      for (int64_t r = 0; r < s.rows; ++r) variance += (x[r * s.channels + c] - mean) * (x[r * s.channels + c] - mean);
      variance /= static_cast<double>(s.rows);
      const double scale = weight[c] / std::sqrt(variance + s.epsilon);
      for (int64_t i = c; i < s.rows * s.channels; i += s.channels) {
        T y = static_cast<T>((x[i] - mean) * scale + static_cast<double>(bias[c]));
        if (attrs.residual) y += args.in[3].as<T>()[i];
        args.out[0].as<T>()[i] = attrs.relu && y < 0 ? 0 : y;
      }
      args.out[1].as<T>()[c] = static_cast<T>(mean);
      args.out[2].as<T>()[c] = static_cast<T>(variance);
    }
  });
}

// With x^ = (x - mean) * rstd:
//   dbias = sum(dy),  dweight = sum(dy * x^),  dx = weight * rstd * (dy - dbias / N - x^ * dweight / N)
// where dy is zero below a fused ReLU.
void run_batch_norm_grad_reference(const KernelArgs& args) {
  const BatchNormSizes s(args.in[1].shape(), args);
  for_float(args.in[1].type.dtype, [&]<class T>() {
    const T *dy = args.in[0].as<T>(), *x = args.in[1].as<T>(), *weight = args.in[2].as<T>();
    for (int64_t c = 0; c < s.channels; ++c) {
      const double mean = args.in[3].as<T>()[c], rstd = 1 / std::sqrt(args.in[4].as<T>()[c] + s.epsilon);
      const bool relu = args.attrs<BatchNormAttrs>().relu;
      const auto slope = [&](int64_t i) {
        const double scale = weight[c] * rstd;
        return relu && !((x[i] - mean) * scale + static_cast<double>(args.in[5].as<T>()[c]) > 0) ? T{0} : dy[i];
      };
      double sum = 0, product = 0;
      for (int64_t i = c; i < s.rows * s.channels; i += s.channels)
        sum += slope(i), product += slope(i) * (x[i] - mean) * rstd;
      for (int64_t i = c; i < s.rows * s.channels; i += s.channels)
        args.out[0].as<T>()[i] = static_cast<T>(
            weight[c] * rstd * (slope(i) - (sum + (x[i] - mean) * rstd * product) / static_cast<double>(s.rows)));
      args.out[1].as<T>()[c] = static_cast<T>(product);
      args.out[2].as<T>()[c] = static_cast<T>(sum);
    }
  });
}

template <int x> size_t batch_norm_kernel_workspace(const KernelQuery& query) {
  const Shape& shape = query.in[x].shape;
  return batch_norm_workspace(shape.elements() / shape[-1], shape[-1]);
}

// x: the number of its operand; the weight is the next one.
BatchNormArgs batch_norm_args(const KernelArgs& args, size_t x, const float* bias) {
  const BatchNormSizes s(args.in[x].shape(), args);
  return {.rows = s.rows,
      .channels = s.channels,
      .x = stored(args.in[x]),
      .weight = args.in[x + 1].as<float>(),
      .bias = bias,
      .epsilon = s.epsilon,
      .relu = args.attrs<BatchNormAttrs>().relu};
}

void run_batch_norm(const KernelArgs& args) {
  batch_norm_forward(batch_norm_args(args, 0, args.in[2].as<float>()),
      args.attrs<BatchNormAttrs>().residual ? stored(args.in[3]) : nullptr, mutable_stored(args.out[0]),
      args.out[1].as<float>(), args.out[2].as<float>(), args.workspace, args.pool);
}

void run_batch_norm_grad(const KernelArgs& args) {
  const float* bias = args.attrs<BatchNormAttrs>().relu ? args.in[5].as<float>() : nullptr;
  batch_norm_backward(batch_norm_args(args, 1, bias), stored(args.in[0]), args.in[3].as<float>(),
      args.in[4].as<float>(), mutable_stored(args.out[0]), args.out[1].as<float>(), args.out[2].as<float>(),
      args.workspace, args.pool);
}
}  // namespace

const OpDef kLayerNorm{.name = "layer_norm",
    .infer = infer_layer_norm,
    .gradient = layer_norm_gradient,
    .decompose = decompose_layer_norm,
    .storage = reduced<0b1, 0b1>,
    .cheap = true};
const OpDef kLayerNormGrad{.name = "layer_norm_grad", .infer = infer_layer_norm_grad, .storage = reduced<0b11, 0b1>};
const OpDef kNormSums{.name = "norm_sums", .infer = infer_norm_sums};
const OpDef kResidualNorm{.name = "residual_norm",
    .infer = infer_residual_norm,
    .gradient = residual_norm_gradient,
    .decompose = decompose_residual_norm,
    // A row of x and f is read before its sum is written, and its sum before its y.
    .may_overwrite = [](const Node&, int output, int input) { return output < 2 && input < 2; },
    .storage = reduced<0b11, 0b11>,
    .label = residual_norm_label};
const OpDef kResidualNormGrad{.name = "residual_norm_grad",
    .infer = infer_residual_norm_grad,
    .may_overwrite = grad_may_overwrite,
    .storage = residual_norm_grad_storage,
    .label = residual_norm_label};

Tensor layer_norm(At x, Tensor weight, Tensor bias, double epsilon) {
  return op_result(kLayerNorm, x, with_defined({}, {weight, bias}),
      LayerNormAttrs{.epsilon = epsilon, .has_weight = weight.defined(), .has_bias = bias.defined()});
}

Tensor rms_norm(At x, Tensor weight, double epsilon) {
  return op_result(kLayerNorm, x, with_defined({}, {weight}),
      LayerNormAttrs{.epsilon = epsilon, .centered = false, .has_weight = weight.defined(), .has_bias = false});
}

ResidualNorm residual_norm(At x, Tensor f, Tensor weight, Tensor bias, Tensor random, const ResidualNormAttrs& attrs) {
  const auto where = [](bool there, Tensor operand) { return there ? operand : Tensor{}; };
  const auto out = op_results(kResidualNorm, x,
      with_defined({f}, {where(attrs.norm.has_weight, weight), where(attrs.norm.has_bias, bias),
                            where(attrs.probability > 0, random)}),
      attrs);
  return {out[0], out[1]};
}

LINNET_KERNELS(layer_norm, {"simd", run_norm<false>, f32_or_all_reduced}, {"reference", run_norm_reference<false>})
LINNET_KERNELS(layer_norm_grad, {"simd", run_norm_grad<false>, supports_norm_grad<false>, norm_grad_workspace},
    {"reference", run_norm_grad_reference<false>})
LINNET_KERNELS(residual_norm, {"simd", run_norm<true>, f32_or_all_reduced}, {"reference", run_norm_reference<true>})
LINNET_KERNELS(residual_norm_grad, {"simd", run_norm_grad<true>, supports_norm_grad<true>, norm_grad_workspace},
    {"reference", run_norm_grad_reference<true>})
LINNET_KERNELS(norm_sums, {"reference", run_norm_sums_reference})

const OpDef kBatchNorm{.name = "batch_norm",
    .infer = infer_batch_norm,
    .gradient = batch_norm_gradient,
    .decompose = decompose_batch_norm,
    .storage = reduced<0b1001, 0b001>};
const OpDef kBatchNormGrad{
    .name = "batch_norm_grad", .infer = infer_batch_norm_grad, .storage = reduced<0b00011, 0b001>};

BatchNormResult batch_norm(At x, Tensor weight, Tensor bias, double epsilon) {
  const std::vector<Tensor> out = op_results(kBatchNorm, x, {weight, bias}, BatchNormAttrs{epsilon});
  return {out[0], out[1], out[2]};
}

LINNET_KERNELS(batch_norm, {"simd", run_batch_norm, f32_or_all_reduced, batch_norm_kernel_workspace<0>},
    {"reference", run_batch_norm_reference})
LINNET_KERNELS(batch_norm_grad, {"simd", run_batch_norm_grad, f32_or_all_reduced, batch_norm_kernel_workspace<1>},
    {"reference", run_batch_norm_grad_reference})
}  // namespace linnet
