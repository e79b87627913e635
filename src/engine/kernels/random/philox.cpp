#include "engine/kernels/random/philox.h"
#include <Random123/philox.h>
#undef philox4x32  // a macro there, a function here

#include <algorithm>
#include <cmath>
#include <string>
#include "base/error.h"

namespace linnet {

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, uint64_t key) {
  const r123::Philox4x32::ctr_type in = {{counter[0], counter[1], counter[2], counter[3]}};
  const r123::Philox4x32::key_type key_words = {{static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)}};
  const auto out = r123::Philox4x32()(in, key_words);
  return {out[0], out[1], out[2], out[3]};
}

uint32_t dropout_threshold(float p) {
  if (!(p >= 0 && p < 1)) fail_internal("dropout probability " + std::to_string(p) + " is outside [0, 1)");
  return std::min<uint32_t>(static_cast<uint32_t>(std::lround(p * 65536.0)), 65535);
}

float dropout_scale(float p) { return 65536.0f / static_cast<float>(65536 - dropout_threshold(p)); }

bool dropout_keeps(uint64_t key, int64_t index, uint32_t c1, uint32_t c2, uint32_t c3, float p) {
  const auto words = philox4x32({static_cast<uint32_t>(index / 8), c1, c2, c3}, key);
  const auto value = static_cast<int>(index % 8);
  return ((words[value / 2] >> (16 * (value % 2))) & 0xffff) >= dropout_threshold(p);
}

}  // namespace linnet
