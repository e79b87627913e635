// One decoder file for both cases: with keys and values of earlier positions, and without.
#pragma once
#include "onnx/file/model.h"

namespace linnet {

// A model with an input "use_cache_branch" bool [1] that chooses which of the two computes; parameters that they share
// are there once. Where `with_past` has no output of some name, its input past_key_values... is passed on as present...
OnnxModel merge_decoders(OnnxModel without_past, OnnxModel with_past, bool any_head_size = false);

}  // namespace linnet
