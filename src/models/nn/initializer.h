// Initial values of parameters, drawn by name: they do not depend on what stands before the parameter in the model.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include "engine/ir/tensor_type.h"

namespace linnet {
// Fills a parameter of this shape; `uniform` gives numbers in [0, 1).
using Initializer =
    std::function<void(std::span<float> values, const Shape& shape, const std::function<double()>& uniform)>;

Initializer constant_init(double value);  // the same value everywhere
// U(-a, a), a = sqrt(6 / (fan_in + fan_out)) (Glorot & Bengio 2010). Of a weight that stacks `parts` matrices (fused
// query, key and value), each takes its own fan.
Initializer xavier_uniform(int64_t parts = 1);
Initializer uniform_init(double bound);     // U(-bound, bound)
Initializer normal_init(double deviation);  // N(0, deviation^2)
// PE(pos, 2i) = sin(pos / 10000^(2i / d)), PE(pos, 2i + 1) = cos of the same (Vaswani et al. 2017). Shape [length, d].
// With `halves`, all sines come before all cosines.
Initializer sinusoidal_positions(bool halves = false);

// Fills the values of a parameter. Random numbers depend on name and seed alone.
void initialize(
    const Initializer& initializer, std::string_view name, uint64_t seed, const Shape& shape, std::span<float> values);
}  // namespace linnet
