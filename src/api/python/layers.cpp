// Library layers as parts of Python modules, initial values, and the calls that record them.
#include <linnet/attention.h>
#include <linnet/error.h>
#include <linnet/initializers.h>
#include <linnet/layers.h>
#include <linnet/modules.h>
#include <linnet/onnx.h>
#include <linnet/pretrained.h>
#include <linnet/recurrent.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <array>
#include <cmath>
#include <map>
#include "api/python/tree.h"
#include "base/fail.h"
#include "engine/ops/movement/movement.h"

namespace linnet::python {
namespace {
struct Init {
  Initializer fill;
};

template <class Layer, class... Arguments> LayerSpec spec_of(Arguments... arguments) {
  LayerSpec spec;
  spec.make = [=](Module* parent, const std::string& name) -> std::unique_ptr<Module> {
    return std::make_unique<Layer>(parent, name, arguments...);
  };
  if constexpr (std::is_invocable_v<Layer&, At>)
    spec.apply = [](Module& layer, At x) -> Tensor { return static_cast<Layer&>(layer)(x); };
  return spec;
}

LayerSpec embedding_spec(int64_t rows, int64_t width, const std::optional<Init>& init, bool scaled) {
  const double root = std::sqrt(static_cast<double>(width));
  LayerSpec spec = spec_of<Embedding>(rows, width, init ? init->fill : normal_init(scaled ? 1 / root : 1));
  if (!scaled) return spec;
  spec.make = [make = spec.make, root](Module* parent, const std::string& name) {
    std::unique_ptr<Module> table = make(parent, name);
    static_cast<Embedding&>(*table).scale = root;
    return table;
  };
  return spec;
}

template <class Layer, class... More> LayerSpec convolution_spec(int64_t in, int64_t out, std::array<int64_t, 2> size,
    int64_t stride, std::array<int64_t, 2> padding, int64_t dilation, int64_t groups, bool bias,
    const std::optional<Init>& init, More... more) {
  const Conv2dOptions options{
      stride, padding[0], dilation, groups, bias, init ? init->fill : Initializer{}, size[1], padding[1]};
  return spec_of<Layer>(in, out, size[0], options, more...);
}

void add_initializers(nb::module_& module) {
  nb::class_<Init>(module, "Initializer", "Gives a parameter its values before training.");
  const std::pair<const char*, Initializer (*)(double)> of_a_number[] = {{"init_constant", constant_init},
      {"init_uniform", uniform_init}, {"init_normal", normal_init}, {"init_truncated_normal", truncated_normal_init}};
  for (const auto& [name, rule] : of_a_number)
    module.def(name, [rule = rule](double value) { return Init{rule(value)}; });
  const std::pair<const char*, Initializer (*)()> of_fans[] = {{"init_xavier_uniform", [] { return xavier_uniform(); }},
      {"init_xavier_normal", xavier_normal}, {"init_he_uniform", he_uniform}, {"init_he_normal", he_normal},
      {"init_lecun_normal", lecun_normal}};
  for (const auto& [name, rule] : of_fans) module.def(name, [rule = rule] { return Init{rule()}; });
  module.def("init_values", [](nb::object values) {
    const Converted given = convert(values, DType::kF32, "the initial values");
    return Init{[fill = values_init(given.values<float>()), known = given.type.shape](
                    std::span<float> to, const Shape& shape, const auto& uniform) {
      if (known.rank() > 1 && known != shape)
        fail_user("a parameter of shape ", shape, " is initialized with values of shape ", known);
      fill(to, shape, uniform);
    }};
  });
}

void add_specs(nb::module_& module) {
  nb::class_<LayerSpec>(module, "LayerSpec", "A layer of the library before it is a part of a model.")
      .def("__deepcopy__", [](const LayerSpec& spec, nb::handle) { return LayerSpec(spec); });
  module.def("linear", [](int64_t in, int64_t out, bool bias, const std::optional<Init>& init) {
    return spec_of<Linear>(in, out, init ? init->fill : xavier_uniform(), bias);
  });
  module.def("embedding_layer", embedding_spec);
  module.def("layer_norm_layer", [](int64_t width, double epsilon, bool affine) {
    return spec_of<LayerNorm>(width, epsilon, affine ? NormKind::kLayer : NormKind::kBare);
  });
  module.def("rms_norm_layer", spec_of<RmsNorm, int64_t, double>);
  module.def("group_norm_layer", spec_of<GroupNorm, int64_t, int64_t, double>);
  module.def("batch_norm_layer", spec_of<BatchNorm, int64_t, double, double>);
  module.def("dropout_layer", spec_of<Dropout, float>);
  module.def("conv2d_layer", convolution_spec<Conv2d>);
  module.def("conv1d_layer", convolution_spec<Conv1d>);
  module.def("conv_transpose2d_layer", convolution_spec<ConvTranspose2d, int64_t>);
  module.def("lstm_layer", spec_of<Lstm, int64_t, int64_t>);
  module.def("gru_layer", spec_of<Gru, int64_t, int64_t>);
  module.def("conv_relu_pool_layer", spec_of<ConvReluPool, int64_t, int64_t, std::vector<double>, std::vector<double>>);
  module.def("attention_layer",
      [](int64_t width, int64_t heads, int64_t kv_heads, float dropout, double rotary_theta, bool biases) {
        return spec_of<MultiHeadAttention>(
            width, heads, MultiHeadAttentionOptions{kv_heads, dropout, rotary_theta, biases});
      });
  module.def("bert_layer", spec_of<PretrainedBert, std::string>);
  module.def("onnx_layer", spec_of<OnnxModule, std::string>);
}

// A Python object's layer in the recorded model.
template <class Layer> Layer& layer_of(nb::handle object) {
  Module* module = Recording::tree("a layer").find(object);
  auto* layer = dynamic_cast<Layer*>(module);
  if (!layer)
    fail_user(python_line(), ": the ", class_name(object),
        " is no part of the model that is recorded; parts are attributes of its modules");
  return *layer;
}

void add_calls(nb::module_& module) {
  module.def("apply", [](nb::object layer, Operand x) {
    return nb::cast<const LayerSpec&>(layer.attr("_spec")).apply(layer_of<Module>(layer), x.at());
  });
  module.def("attend",
      [](nb::object layer, Operand x, std::optional<Operand> memory, std::optional<Operand> lengths, bool causal) {
        auto& attention = layer_of<MultiHeadAttention>(layer);
        const AttentionMask mask{or_none(lengths), causal};
        return memory ? attention(x.tensor(), memory->tensor(), mask) : attention(x.tensor(), mask);
      });
  module.def("bert", [](nb::object layer, Operand tokens, Operand lengths, std::optional<Operand> types) {
    return layer_of<PretrainedBert>(layer)(tokens.tensor(), lengths.tensor(), or_none(types));
  });
  module.def("bert_pooled",
      [](nb::object layer, Operand states) { return layer_of<PretrainedBert>(layer).pooled(states.tensor()); });
  module.def("onnx", [](nb::object layer, Operand input) { return layer_of<OnnxModule>(layer)(input.tensor()); });
  module.def("onnx_named", [](nb::object layer, const std::map<std::string, Operand>& inputs) {
    std::map<std::string, Tensor> tensors;
    for (const auto& [name, input] : inputs) tensors[name] = input.tensor();
    return layer_of<OnnxModule>(layer)(tensors);
  });
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
      "buffer"_a, "next"_a, "After the step the buffer holds `next`; only while is_training().");
  module.def(
      "positions", [](Operand tokens) { return counted_positions(tokens.tensor()); }, "tokens"_a,
      "0, 1, ... along the last axis: int32 of the shape of `tokens`.");
  module.def("parameter", [](const std::vector<int64_t>& shape, const Init& init, bool buffer) {
    return ParameterSource{
        to_shape(shape), init.fill, buffer ? ParameterSource::Kind::kBuffer : ParameterSource::Kind::kTrained};
  });
}
}  // namespace

void add_layers(nb::module_& module) {
  add_initializers(module);
  add_specs(module);
  add_calls(module);
}
}  // namespace linnet::python
