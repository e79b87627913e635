// More initial values of parameters.
//
// Fans of a weight [out, in] are in and out; of filters [out, rows, columns, in] they are rows * columns * in and rows
// * columns * out; of a vector both are its size.
#pragma once
#include <vector>
#include "linnet/initializer.h"

namespace linnet {
// The values given, as many as there are elements; Error(kUser) otherwise.
Initializer values_init(std::vector<float> values);
// N(0, deviation^2), of which values beyond two deviations are drawn again.
Initializer truncated_normal_init(double deviation);
// N(0, 2 / (fan_in + fan_out)) (Glorot & Bengio 2010).
Initializer xavier_normal();
// U(-a, a), a = sqrt(6 / fan_in), for layers that ReLU follows (He et al. 2015).
Initializer he_uniform();
// N(0, 2 / fan_in), for layers that ReLU follows (He et al. 2015).
Initializer he_normal();
// N(0, 1 / fan_in) (LeCun et al. 1998).
Initializer lecun_normal();
}  // namespace linnet
