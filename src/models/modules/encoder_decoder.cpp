#include "models/modules/encoder_decoder.h"
#include "engine/ops/movement/movement.h"

namespace linnet {

TargetRows step_targets(Tensor tokens, const DecodeStep& step) {
  return {.tokens = reshape(tokens, {tokens.dim(0), 1}),
          .source_lengths = step.memory_lengths,
          .split = step_cache(step),
          .memory = kept_memory(*tokens.graph, step),
          .positions = step.positions(),
          .lengths = step.lengths,
          .keys = step.max_length};
}

}  // namespace linnet
