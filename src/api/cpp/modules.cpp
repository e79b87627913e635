#include "linnet/modules.h"
#include <algorithm>
#include <cmath>
#include <numbers>
#include "api/cpp/helpers.h"
#include "base/fail.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/formula.h"
#include "engine/ops/pool/pool.h"
#include "engine/ops/recurrent/recurrent.h"
#include "linnet/attention.h"
#include "linnet/initializers.h"
#include "linnet/math.h"
#include "linnet/random.h"
#include "linnet/recurrent.h"
#include "models/modules/attention_block.h"
#include "models/nn/trace.h"

namespace linnet {
namespace {
struct Fans {
  double in, out;
};

Fans fans_of(const Shape& shape) {
  const auto elements = static_cast<double>(shape.elements());
  if (shape.rank() < 2) return {elements, elements};
  return {elements / static_cast<double>(shape[0]), elements / static_cast<double>(shape[-1])};
}

Initializer normal_of(double (*variance)(const Fans& fans)) {
  return [variance](std::span<float> values, const Shape& shape, const auto& uniform) {
    normal_init(std::sqrt(variance(fans_of(shape))))(values, shape, uniform);
  };
}

// Each draw is identified by its module and the number of earlier draws.
Tensor draw(const Shape& shape, SourceLine where) {
  Trace& trace = Trace::current();
  const Graph& graph = trace.graph();
  const auto before = std::ranges::count(graph.nodes(), &kRandomUniform, &Node::op);
  const uint64_t site = dropout_site(graph.scope_path(graph.scope()), "random " + std::to_string(before));
  return random_uniform(At(trace.random(), where), {trace.options().dtype, shape}, site);
}

void check_kernel(const std::string& path, int64_t in, int64_t out, int64_t size, const Conv2dOptions& options) {
  const auto fail = [&](const auto&... problem) { fail_user("convolution \"", path, "\": ", problem...); };
  if (in < 1 || out < 1 || size < 1) fail("channels and size must be at least 1");
  if (options.stride < 1 || options.dilation < 1 || options.groups < 1)
    fail("stride, dilation and groups must be at least 1");
  if (options.padding < 0) fail("padding must not be negative");
  if (in % options.groups != 0 || out % options.groups != 0)
    fail(in, " channels in and ", out, " out are no multiples of ", options.groups, " groups");
}

Initializer initializer_of(const Conv2dOptions& options) {
  return options.initializer ? options.initializer : he_normal();
}

void check_square(const std::string& path, const Conv2dOptions& options) {
  if (options.width >= 0 || options.padding_width >= 0)
    fail_user("convolution \"", path, "\": the options width and padding_width are those of Conv2d");
}

constexpr int64_t kLstmGates = 4, kGruGates = 3;

Initializer uniform_of(int64_t hidden) { return uniform_init(1 / std::sqrt(static_cast<double>(hidden))); }

int64_t checked_recurrent(const std::string& name, int64_t in, int64_t hidden) {
  if (in < 1 || hidden < 1)
    fail_user("recurrent layer \"", name, "\" from ", in, " to ", hidden, " features: both must be at least 1");
  return hidden;
}

// One product projects all inputs; the loop runs along the first axis.
Tensor looped(At x, RecurrentKind kind, const Parameter& weight_ih, const Parameter& weight_hh,
    const Parameter& bias_ih, const Parameter& bias_hh, const std::string& path, RecurrentState* given) {
  const auto at = [&](Tensor value) { return At(value, x.where); };
  const Shape shape = x.value.shape();
  const int64_t in = weight_ih.spec().shape[1], hidden = weight_hh.spec().shape[1];
  if (shape.rank() != 3 || shape[2] != in)
    fail_shape(x, "recurrent layer of ", shape, ", expected [B, T, ", in, "]", in_scope(path));
  const Tensor projected = at(matmul(at(permute(x, {1, 0, 2})), weight_ih, false, true)) + bias_ih;
  RecurrentState state = given ? *given : RecurrentState{};
  const Shape one{shape[0], hidden};
  if (!state.hidden.defined()) state.hidden = zeros(x.value, one);
  if (!state.cell.defined() && kind == RecurrentKind::kLstm) state.cell = zeros(x.value, one);
  const RecurrentResult found = recurrent(
      {projected, weight_hh, bias_hh, state.hidden, state.cell}, {.kind = kind}, Trace::must_decompose(), x.where);
  if (given) *given = {found.last_hidden, found.cell};
  return permute(at(found.hidden), {1, 0, 2});
}
}  // namespace

Initializer values_init(std::vector<float> given) {
  return [given = std::move(given)](std::span<float> values, const Shape& shape, const auto&) {
    if (given.size() != values.size())
      fail_user("a parameter of shape ", shape, " is initialized with ", given.size(), " values");
    std::ranges::copy(given, values.begin());
  };
}

Initializer xavier_normal() {
  return normal_of([](const Fans& fans) { return 2 / (fans.in + fans.out); });
}

Initializer he_uniform() {
  return [](std::span<float> values, const Shape& shape, const auto& uniform) {
    uniform_init(std::sqrt(6 / fans_of(shape).in))(values, shape, uniform);
  };
}

Initializer he_normal() {
  return normal_of([](const Fans& fans) { return 2 / fans.in; });
}

Initializer lecun_normal() {
  return normal_of([](const Fans& fans) { return 1 / fans.in; });
}

Initializer truncated_normal_init(double deviation) {
  return [deviation](std::span<float> values, const Shape&, const auto& uniform) {
    const auto next = [&] {  // Box & Muller 1958
      const double radius = deviation * std::sqrt(-2 * std::log(1 - uniform()));
      return radius * std::cos(2 * std::numbers::pi * uniform());
    };
    for (float& value : values) {
      double drawn = next();
      while (std::abs(drawn) > 2 * deviation) drawn = next();
      value = static_cast<float>(drawn);
    }
  };
}

Tensor random_uniform(const Shape& shape, double low, double high, SourceLine where) {
  return At(At(draw(shape, where), where) * (high - low), where) + low;
}

// Box & Muller 1958.
Tensor random_normal(const Shape& shape, SourceLine where) {
  const std::array drawn{draw(shape, where), draw(shape, where)};
  FormulaBuilder f;
  const Number rest = 1 - f[0];  // never 0, whose logarithm is infinite
  const Number radius = sqrt(-2 * log(rest)), angle = 2 * std::numbers::pi * f[1];
  return f.finish(radius * cos(angle), drawn, where);
}

GroupNorm::GroupNorm(Module* parent, std::string name, int64_t groups, int64_t channels, double epsilon)
    : Module(parent, std::move(name)),
      groups(groups), weight{this, "weight", {channels}, constant_init(1)}, bias{this, "bias", {channels},
                                                                                constant_init(0)},
      epsilon(epsilon) {
  if (groups < 1 || channels % groups != 0)
    fail_user("group normalization \"", path(), "\" of ", channels, " channels in ", groups,
        " groups: the channels must be a multiple of the groups");
}

Tensor GroupNorm::operator()(At x) {
  ModuleScope scope(*this);
  const auto at = [&](Tensor value) { return At(value, x.where); };
  const Shape shape = x.value.shape(), channels = weight.spec().shape;
  if (shape.rank() < 2 || shape[-1] != channels[0])
    fail_shape(x, "group normalization of ", shape, ", expected [N, ..., ", channels[0], "]", in_scope(path()));
  const int64_t size = channels[0] / groups, positions = shape.elements(1, shape.rank() - 1);
  // [N, positions, groups, size] -> a row for each sample and group.
  const Tensor by_group = permute(at(reshape(x, {shape[0], positions, groups, size})), {0, 2, 1, 3});
  const Tensor normal = layer_norm(at(reshape(at(by_group), {shape[0], groups, positions * size})), {}, {}, epsilon);
  const Tensor back = permute(at(reshape(at(normal), {shape[0], groups, positions, size})), {0, 2, 1, 3});
  return at(reshape(at(back), shape)) * weight + bias;
}

Sequential::Sequential(Module* parent, std::string name) : Module(parent, std::move(name)) {}

Sequential& Sequential::add(std::function<Tensor(At)> function) {
  if (!function) fail_user("an empty function is added to \"", path(), "\"");
  functions_.push_back(std::move(function));
  return *this;
}

Sequential& Sequential::add(Tensor (*function)(At)) { return add(std::function<Tensor(At)>(function)); }

Tensor Sequential::operator()(At x) {
  for (const auto& function : functions_) x.value = function(x);
  return x.value;
}

Conv2d::Conv2d(Module* parent, std::string name, int64_t in, int64_t out, int64_t size, const Conv2dOptions& given)
    : Module(parent, std::move(name)), options((check_kernel(path(), in, out, size, given), given)),
      weight{
          this, "weight", {out, size, given.width < 0 ? size : given.width, in / given.groups}, initializer_of(given)} {
  if (options.width == 0) fail_user("convolution \"", path(), "\": the width of filters must be at least 1");
  if (options.bias) bias.emplace(this, "bias", Shape{out}, constant_init(0));
}

Tensor Conv2d::operator()(At x) {
  ModuleScope scope(*this);
  const Shape shape = x.value.shape(), filters = weight.spec().shape;
  const int64_t sides = options.padding_width < 0 ? options.padding : options.padding_width;
  const auto reach = [&](int axis) { return (filters[axis] - 1) * options.dilation + 1; };
  if (shape.rank() != 4 || shape[3] != filters[3] * options.groups || shape[1] + 2 * options.padding < reach(1) ||
      shape[2] + 2 * sides < reach(2))
    fail_shape(x, "convolution of images of shape ", shape, " with filters ", filters, " in ", options.groups,
        " groups: expected [N, H, W, ", filters[3] * options.groups, "], at least as large as a filter",
        in_scope(path()));
  const bool even = sides == options.padding;
  const Tensor wide = even ? x.value : pad(At(pad(x, 1, options.padding, options.padding), x.where), 2, sides, sides);
  const Tensor y =
      conv2d(At(wide, x.where), weight, options.stride, even ? options.padding : 0, options.dilation, options.groups);
  return bias ? At(y, x.where) + *bias : y;
}

Tensor conv1d(At x, Tensor weight, int64_t stride, int64_t padding, int64_t dilation, int64_t groups) {
  const Shape s = x.value.shape(), w = weight.shape();
  if (s.rank() != 3 || w.rank() != 3)
    fail_shape(x, "conv1d: ", s, " with filters ", w, ", expected [N, L, C] and [O, K, C / groups]");
  const Tensor padded = padding == 0 ? x.value : pad(x, 1, padding, padding);
  const auto at = [&](Tensor value) { return At(value, x.where); };
  const Tensor rows = reshape(at(padded), {s[0], 1, padded.dim(1), s[2]});
  const Tensor y = conv2d(at(rows), reshape(at(weight), {w[0], 1, w[1], w[2]}), stride, 0, dilation, groups);
  return reshape(at(y), {s[0], y.dim(2), w[0]});
}

Tensor conv_transpose2d(
    At x, Tensor weight, int64_t stride, int64_t padding, int64_t output_padding, int64_t dilation, int64_t groups) {
  const Shape s = x.value.shape(), w = weight.shape();
  const auto size = [&](int axis) {
    return (s[axis] - 1) * stride - 2 * padding + dilation * (w[axis] - 1) + output_padding + 1;
  };
  const bool ranks = s.rank() == 4 && w.rank() == 4;
  if (!ranks || s[3] != w[0] || groups < 1 || w[0] % groups != 0 || stride < 1 || padding < 0 || dilation < 1 ||
      output_padding < 0 || output_padding >= stride || size(1) < 1 || size(2) < 1)
    fail_shape(x, "conv_transpose2d: ", s, " with filters ", w, ", stride ", stride, ", padding ", padding,
        ", output padding ", output_padding,
        ": expected [N, H, W, C], [C, R, S, O / groups], and an output padding below the stride");
  return conv2d_transposed(x, weight, {s[0], size(1), size(2), w[3] * groups}, stride, padding, dilation, groups);
}

Conv1d::Conv1d(Module* parent, std::string name, int64_t in, int64_t out, int64_t size, const Conv2dOptions& given)
    : Module(parent, std::move(name)),
      options((check_kernel(path(), in, out, size, given), given)), weight{this, "weight",
                                                                        {out, size, in / given.groups},
                                                                        initializer_of(given)} {
  check_square(path(), given);
  if (options.bias) bias.emplace(this, "bias", Shape{out}, constant_init(0));
}

Tensor Conv1d::operator()(At x) {
  ModuleScope scope(*this);
  const Tensor y = conv1d(x, weight, options.stride, options.padding, options.dilation, options.groups);
  return bias ? At(y, x.where) + *bias : y;
}

ConvTranspose2d::ConvTranspose2d(Module* parent, std::string name, int64_t in, int64_t out, int64_t size,
    const Conv2dOptions& given, int64_t output_padding)
    : Module(parent, std::move(name)), options((check_kernel(path(), in, out, size, given), given)),
      output_padding(output_padding), weight{
                                          this, "weight", {in, size, size, out / given.groups}, initializer_of(given)} {
  check_square(path(), given);
  if (options.bias) bias.emplace(this, "bias", Shape{out}, constant_init(0));
}

Tensor ConvTranspose2d::operator()(At x) {
  ModuleScope scope(*this);
  const Tensor y =
      conv_transpose2d(x, weight, options.stride, options.padding, output_padding, options.dilation, options.groups);
  return bias ? At(y, x.where) + *bias : y;
}

ConvReluPool::ConvReluPool(Module* parent, std::string name, int64_t in, int64_t out, const std::vector<double>& mean,
    const std::vector<double>& deviation)
    : Module(parent, std::move(name)), weight{this, "weight", {out, 3, 3, in}, he_normal()}, bias{this, "bias", {out},
                                                                                                 constant_init(0)},
      mean(mean), deviation(deviation) {}

Tensor ConvReluPool::operator()(At x) {
  ModuleScope scope(*this);
  const bool bytes = x.value.type().dtype == DType::kU8;
  return conv_relu_pool(
      x, weight, bias, bytes ? pixel_scaling(weight.spec().shape[3], mean, deviation) : PixelScaling{});
}

Lstm::Lstm(Module* parent, std::string name, int64_t in, int64_t hidden)
    : Module(parent, std::move(name)), weight_ih{this, "weight_ih_l0",
                                           {kLstmGates * checked_recurrent(path(), in, hidden), in},
                                           uniform_of(hidden)},
      weight_hh{this, "weight_hh_l0", {kLstmGates * hidden, hidden}, uniform_of(hidden)},
      bias_ih{this, "bias_ih_l0", {kLstmGates * hidden}, uniform_of(hidden)}, bias_hh{this, "bias_hh_l0",
                                                                                  {kLstmGates * hidden},
                                                                                  uniform_of(hidden)} {}

Tensor Lstm::operator()(At x, RecurrentState* state) {
  ModuleScope scope(*this);
  return looped(x, RecurrentKind::kLstm, weight_ih, weight_hh, bias_ih, bias_hh, path(), state);
}

Gru::Gru(Module* parent, std::string name, int64_t in, int64_t hidden)
    : Module(parent, std::move(name)), weight_ih{this, "weight_ih_l0",
                                           {kGruGates * checked_recurrent(path(), in, hidden), in}, uniform_of(hidden)},
      weight_hh{this, "weight_hh_l0", {kGruGates * hidden, hidden}, uniform_of(hidden)},
      bias_ih{this, "bias_ih_l0", {kGruGates * hidden}, uniform_of(hidden)}, bias_hh{this, "bias_hh_l0",
                                                                                 {kGruGates * hidden},
                                                                                 uniform_of(hidden)} {}

Tensor Gru::operator()(At x, RecurrentState* state) {
  ModuleScope scope(*this);
  return looped(x, RecurrentKind::kGru, weight_ih, weight_hh, bias_ih, bias_hh, path(), state);
}

Tensor attention(At q, Tensor k, Tensor v, int64_t heads, const AttentionMask& mask) {
  const int64_t width = q.value.dim(-1), size = heads > 0 ? width / heads : 0;
  if (heads < 1 || size < 1 || width % heads != 0 || k.dim(-1) % size != 0)
    fail_shape(q, "attention: queries ", q.value.shape(), " and keys ", k.shape(), " do not have ", heads,
        " heads of one size");
  AttentionOptions options{.heads = heads, .kv_heads = k.dim(-1) / size};
  options.causal = mask.causal, options.lengths = mask.lengths;
  return attention(q, k, v, options);
}

struct MultiHeadAttention::State {
  State(Module* parent, const LayerConfig& config) : attention(parent, "", config, "in_proj_") {}
  SelfAttention attention;
};

MultiHeadAttention::MultiHeadAttention(
    Module* parent, std::string name, int64_t width, int64_t heads, const MultiHeadAttentionOptions& options)
    : Module(parent, std::move(name)) {
  const int64_t kv_heads = options.kv_heads > 0 ? options.kv_heads : heads;
  if (heads < 1 || width < 1 || options.kv_heads < 0 || width % heads != 0 || heads % kv_heads != 0)
    fail_user("attention \"", path(), "\" of width ", width, " with ", heads, " heads and ", kv_heads,
        " of keys: each must be a multiple of the next");
  if (!(options.dropout >= 0 && options.dropout < 1))
    fail_user("attention \"", path(), "\" has a dropout of ", options.dropout, ", which is not in [0, 1)");
  LayerConfig config{.width = width, .heads = heads, .dropout = options.dropout, .kv_heads = options.kv_heads};
  config.biases.attention = config.biases.output = options.biases;
  if (options.rotary_theta > 0) config.rotary = RotaryConfig{.theta = options.rotary_theta};
  state_ = std::make_unique<State>(this, config);
}

MultiHeadAttention::MultiHeadAttention(MultiHeadAttention&& other) noexcept = default;
MultiHeadAttention::~MultiHeadAttention() = default;

Tensor MultiHeadAttention::operator()(Tensor x, const AttentionMask& mask) {
  const AttentionContext* context = Trace::current().decoding;
  if (!context) return state_->attention(x, {.lengths = mask.lengths, .causal = mask.causal});
  if (!mask.causal || mask.lengths.defined())
    fail_user("attention \"", path(), "\" of a decoder that writes is not causal, or has lengths: it would see ",
        "positions that are not written yet");
  return state_->attention(x, *context);
}

Tensor MultiHeadAttention::operator()(Tensor x, Tensor memory, const AttentionMask& mask) {
  if (mask.causal) fail_user("attention \"", path(), "\" to another sequence cannot be causal");
  return state_->attention.cross(x, memory, mask.lengths);
}
}  // namespace linnet
