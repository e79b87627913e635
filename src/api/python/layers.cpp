// Layers of the library as parts of Python modules, initial values, and the calls that record them.
#include <linnet/attention.h>
#include <linnet/error.h>
#include <linnet/initializers.h>
#include <linnet/layers.h>
#include <linnet/modules.h>
#include <linnet/pretrained.h>

#include <cmath>

#include "api/python/python.h"
#include "api/python/tree.h"
#include "engine/ops/literal/literal.h"

namespace linnet::python {
namespace {

struct Init {
  Initializer fill;
};

Initializer or_default(const Init* init, Initializer standard) { return init ? init->fill : standard; }

template <class Layer, class... Arguments>
LayerSpec spec_of(Arguments... arguments) {
  LayerSpec spec;
  spec.make = [=](Module* parent, const std::string& name) -> std::unique_ptr<Module> {
    return std::make_unique<Layer>(parent, name, arguments...);
  };
  if constexpr (std::is_invocable_v<Layer&, At>)
    spec.apply = [](Module& layer, At x) -> Tensor { return static_cast<Layer&>(layer)(x); };
  return spec;
}

void add_initializers(nb::module_& module) {
  nb::class_<Init>(module, "Initializer", "Gives a parameter its values before training.");
  module.def(
      "init_constant", [](double value) { return Init{constant_init(value)}; }, nb::arg("value"));
  module.def(
      "init_uniform", [](double bound) { return Init{uniform_init(bound)}; }, nb::arg("bound"));
  module.def(
      "init_normal", [](double deviation) { return Init{normal_init(deviation)}; }, nb::arg("deviation"));
  module.def(
      "init_truncated_normal", [](double deviation) { return Init{truncated_normal_init(deviation)}; },
      nb::arg("deviation"));
  using Rule = Initializer (*)();
  const struct {
    const char* name;
    Rule rule;
  } rules[] = {{"init_xavier_uniform", [] { return xavier_uniform(); }},
               {"init_xavier_normal", xavier_normal},
               {"init_he_uniform", he_uniform},
               {"init_he_normal", he_normal},
               {"init_lecun_normal", lecun_normal}};
  for (const auto& row : rules) {
    const Rule rule = row.rule;
    module.def(row.name, [rule] { return Init{rule()}; });
  }
  module.def(
      "init_values",
      [](nb::object values) {
        const Converted converted = convert(values, DType::kF32, "the initial values");
        const auto* data = reinterpret_cast<const float*>(converted.bytes.data());
        return Init{values_init(std::vector<float>(data, data + converted.type.shape.elements()))};
      },
      nb::arg("values"));
}

void add_specs(nb::module_& module) {
  nb::class_<LayerSpec>(module, "LayerSpec", "A layer of the library before it is a part of a model.");
  module.def(
      "linear",
      [](int64_t in, int64_t out, bool bias, const Init* init) {
        return spec_of<Linear>(in, out, or_default(init, xavier_uniform()), bias);
      },
      nb::arg("inputs"), nb::arg("outputs"), nb::arg("bias"), nb::arg("init").none());
  module.def(
      "embedding_layer",
      [](int64_t rows, int64_t width, const Init* init, bool scaled) {
        const double root = std::sqrt(static_cast<double>(width));
        LayerSpec spec = spec_of<Embedding>(rows, width, or_default(init, normal_init(scaled ? 1 / root : 1)));
        if (!scaled) return spec;
        spec.make = [make = spec.make, root](Module* parent, const std::string& name) {
          std::unique_ptr<Module> table = make(parent, name);
          static_cast<Embedding&>(*table).scale = root;
          return table;
        };
        return spec;
      },
      nb::arg("rows"), nb::arg("width"), nb::arg("init").none(), nb::arg("scaled"));
  module.def(
      "layer_norm_layer",
      [](int64_t width, double epsilon, bool affine) {
        return spec_of<LayerNorm>(width, epsilon, affine ? NormKind::kLayer : NormKind::kBare);
      },
      nb::arg("width"), nb::arg("epsilon"), nb::arg("affine"));
  module.def(
      "rms_norm_layer", [](int64_t width, double epsilon) { return spec_of<RmsNorm>(width, epsilon); },
      nb::arg("width"), nb::arg("epsilon"));
  module.def(
      "group_norm_layer",
      [](int64_t groups, int64_t channels, double epsilon) { return spec_of<GroupNorm>(groups, channels, epsilon); },
      nb::arg("groups"), nb::arg("channels"), nb::arg("epsilon"));
  module.def(
      "batch_norm_layer",
      [](int64_t channels, double epsilon, double momentum) { return spec_of<BatchNorm>(channels, epsilon, momentum); },
      nb::arg("channels"), nb::arg("epsilon"), nb::arg("momentum"));
  module.def(
      "dropout_layer", [](double probability) { return spec_of<Dropout>(static_cast<float>(probability)); },
      nb::arg("probability"));
  module.def(
      "conv2d_layer",
      [](int64_t in, int64_t out, int64_t size, int64_t stride, int64_t padding, int64_t dilation, int64_t groups,
         bool bias, const Init* init) {
        return spec_of<Conv2d>(in, out, size,
                               Conv2dOptions{stride, padding, dilation, groups, bias, or_default(init, {})});
      },
      nb::arg("inputs"), nb::arg("outputs"), nb::arg("size"), nb::arg("stride"), nb::arg("padding"),
      nb::arg("dilation"), nb::arg("groups"), nb::arg("bias"), nb::arg("init").none());
  module.def(
      "conv_relu_pool_layer",
      [](int64_t in, int64_t out, std::vector<double> mean, std::vector<double> deviation) {
        return spec_of<ConvReluPool>(in, out, mean, deviation);
      },
      nb::arg("inputs"), nb::arg("outputs"), nb::arg("mean"), nb::arg("deviation"));
  module.def(
      "attention_layer",
      [](int64_t width, int64_t heads, int64_t kv_heads, double dropout, double rotary_theta, bool biases) {
        return spec_of<MultiHeadAttention>(
            width, heads, MultiHeadAttentionOptions{kv_heads, static_cast<float>(dropout), rotary_theta, biases});
      },
      nb::arg("width"), nb::arg("heads"), nb::arg("kv_heads"), nb::arg("dropout"), nb::arg("rotary_theta"),
      nb::arg("biases"));
  module.def(
      "bert_layer", [](const std::string& folder) { return spec_of<PretrainedBert>(folder); }, nb::arg("folder"));
}

// The layer that a Python object stands for in the model that is recorded.
template <class Layer>
Layer& layer_of(nb::handle object) {
  Module* module = Recording::tree("a layer").find(object);
  auto* layer = dynamic_cast<Layer*>(module);
  if (!layer)
    fail_user(python_line().text() + ": the " + nb::cast<std::string>(object.type().attr("__name__")) +
              " is no part of the model that is recorded; parts are attributes of its modules");
  return *layer;
}

void add_calls(nb::module_& module) {
  module.def(
      "apply",
      [](nb::object layer, Operand x) {
        return nb::cast<const LayerSpec&>(layer.attr("_spec")).apply(layer_of<Module>(layer), x.at());
      },
      nb::arg("layer"), nb::arg("x"));
  module.def(
      "attend",
      [](nb::object layer, Operand x, std::optional<Operand> memory, std::optional<Operand> lengths, bool causal) {
        auto& attention = layer_of<MultiHeadAttention>(layer);
        const AttentionMask mask{lengths ? lengths->tensor() : Tensor{}, causal};
        return memory ? attention(x.tensor(), memory->tensor(), mask) : attention(x.tensor(), mask);
      },
      nb::arg("layer"), nb::arg("x"), nb::arg("memory").none(), nb::arg("lengths").none(), nb::arg("causal"));
  module.def(
      "bert",
      [](nb::object layer, Operand tokens, Operand lengths, std::optional<Operand> types) {
        return layer_of<PretrainedBert>(layer)(tokens.tensor(), lengths.tensor(), types ? types->tensor() : Tensor{});
      },
      nb::arg("layer"), nb::arg("tokens"), nb::arg("lengths"), nb::arg("types").none());
  module.def(
      "bert_pooled",
      [](nb::object layer, Operand states) { return layer_of<PretrainedBert>(layer).pooled(states.tensor()); },
      nb::arg("layer"), nb::arg("states"));
  // Calls module.forward() within the module's path, which error messages show.
  module.def(
      "call",
      [](nb::object object, const nb::args& args, const nb::kwargs& kwargs) -> nb::object {
        Module* found = Recording::tree("a module").find(object);
        if (!found) return object.attr("forward")(*args, **kwargs);
        const ModuleScope scope(*found);
        return object.attr("forward")(*args, **kwargs);
      },
      nb::sig("def call(module: typing.Any, *args: typing.Any, **kwargs: typing.Any) -> typing.Any"));
  module.def(
      "update_buffer",
      [](nb::handle buffer, Operand next) {
        const SavedBuffer* found = Recording::tree("a buffer").find_buffer(buffer);
        if (!found) fail_user("the buffer is no part of the model that is recorded");
        found->update(next.tensor());
      },
      nb::arg("buffer"), nb::arg("next"), "After the step the buffer holds `next`; only while is_training().");
  module.def(
      "positions",
      [](Operand tokens) {
        const Tensor value = tokens.tensor();
        const Shape shape = value.shape();
        std::vector<int32_t> counted(static_cast<size_t>(shape.elements()));
        for (size_t i = 0; i < counted.size(); ++i)
          counted[i] = static_cast<int32_t>(static_cast<int64_t>(i) % shape[-1]);
        return literal(*value.graph, {DType::kI32, shape}, counted.data());
      },
      nb::arg("tokens"), "0, 1, ... along the last axis: int32 of the shape of `tokens`.");
}

}  // namespace

void add_layers(nb::module_& module) {
  add_initializers(module);
  add_specs(module);
  add_calls(module);
  module.def(
      "parameter",
      [](const std::vector<int64_t>& shape, const Init& init, bool buffer) {
        return ParameterSource{to_shape(shape), init.fill,
                               buffer ? ParameterSource::Kind::kBuffer : ParameterSource::Kind::kTrained};
      },
      nb::arg("shape"), nb::arg("init"), nb::arg("buffer"));
}

}  // namespace linnet::python
