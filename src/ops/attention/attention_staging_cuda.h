// What cuDNN's attention needs beside its operands, made on the device.
#pragma once
#include "ops/kernel.h"

namespace linnet {

// seed: the dropout key of the step, from `random` (null: 0), and 0 behind it, the offset; query_lengths: `queries` for
// each sample; key_lengths: `lengths` between 0 and keys.
struct AttentionExtras {
  int64_t batch;
  int32_t queries, keys;
  const int32_t *random = nullptr, *lengths = nullptr;
  uint64_t site = 0;
  int64_t* seed = nullptr;
  int32_t *query_lengths = nullptr, *key_lengths = nullptr;
};
void prepare_attention(Device* device, const AttentionExtras& extras);

// [B, T, width] f32 with the strides given (the last is 1) to dense bf16, and back.
void pack_bf16(Device* device, const TensorView& from, void* to);
void unpack_bf16(Device* device, const void* from, const TensorView& to);

}  // namespace linnet
