// Gpt's half of generation: the prompt at once, then token by token over the cache.
#include "base/error.h"
#include "models/gpt.h"
#include "ops/movement/movement.h"

namespace linnet {

Tensor Gpt::prefill(Tensor ids, const CacheSlots& cache) {
  Tensor x = embed(ids);
  for (size_t i = 0; i < layers.size(); ++i) x = layers[i].prefill(x, cache);
  return norm(x);
}

Tensor Gpt::step(Tensor ids, const DecodeStep& step) {
  const int64_t rows = ids.dim(0);
  if (step.max_length > config.max_seq_len)
    fail_user("a cache of " + std::to_string(step.max_length) + " entries, and the model has " +
              std::to_string(config.max_seq_len) + " positions");
  Tensor x = reshape(tokens(ids) + positions(step.position), {rows, 1, config.width});
  for (size_t i = 0; i < layers.size(); ++i) x = layers[i].step(x, step);
  return reshape(norm(x), {rows, config.width});
}

}  // namespace linnet
