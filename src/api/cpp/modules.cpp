#include "linnet/modules.h"
#include "api/cpp/helpers.h"

namespace linnet {
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
    fail_shape(x, "group normalization of ", shape, ", expected [N, ..., ", channels[0], "] (in ", path(), ")");
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
}  // namespace linnet
