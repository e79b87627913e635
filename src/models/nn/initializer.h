// Initial values of parameters, drawn by name: a parameter starts alike whatever stands before it in the model.
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

// The same value everywhere.
Initializer constant_init(double value);
// U(-a, a), a = sqrt(6 / (fan_in + fan_out)) (Glorot & Bengio 2010). A weight that stacks `parts` matrices (a fused
// query, key and value projection) is initialized as those, each by its own fan.
Initializer xavier_uniform(int64_t parts = 1);
// U(-bound, bound)
Initializer uniform_init(double bound);
// N(0, deviation^2)
Initializer normal_init(double deviation);
// PE(pos, 2i) = sin(pos / 10000^(2i / d)), PE(pos, 2i + 1) = cos of the same (Vaswani et al. 2017). Shape [length, d].
// With `halves` all sines come first, then all cosines.
Initializer sinusoidal_positions(bool halves = false);

// Fills the values of a parameter. The random numbers follow from name and seed alone.
void initialize(const Initializer& initializer, std::string_view name, uint64_t seed, const Shape& shape,
                std::span<float> values);

}  // namespace linnet
