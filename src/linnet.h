// Everything a program that trains its own model includes.
#pragma once
#include "models/transformer.h"               // IWYU pragma: export
#include "nn/layers.h"                        // IWYU pragma: export
#include "ops/attention/attention.h"          // IWYU pragma: export
#include "ops/cross_entropy/cross_entropy.h"  // IWYU pragma: export
#include "ops/movement/movement.h"            // IWYU pragma: export
#include "ops/pointwise/pointwise.h"          // IWYU pragma: export
#include "ops/reduce/reduce.h"                // IWYU pragma: export
#include "ops/softmax/softmax.h"              // IWYU pragma: export
#include "train/learner.h"                    // IWYU pragma: export
