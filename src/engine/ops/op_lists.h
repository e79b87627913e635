// The list of all ops in parts: a new op is a folder and a row in one of them. They are separate files so that a
// library without training or images (src/api/runtime) has only the kernels that it runs.
#pragma once
#include <span>

#include "engine/ops/kernel.h"

namespace linnet {

std::span<const OpEntry> inference_ops();  // of models of texts
std::span<const OpEntry> image_ops();      // the forward ops of networks for images
std::span<const OpEntry> training_ops();   // gradients, losses, dropout, optimizers

}  // namespace linnet
