// What cuDNN's attention needs beside its operands, made on the device.
#pragma once
#include <span>
#include "engine/ops/kernel.h"

namespace linnet {

// seed: the dropout key of the step, from `random` (null: 0); offset: 0; query_lengths: `queries` for each sample;
// key_lengths: `lengths` between 1 and keys. cuDNN gives NaN for a sample without a key (NVIDIA/cudnn-frontend#943), so
// such a sample gets one; zero_masked_rows() then removes what came of it.
struct AttentionExtras {
  int64_t batch;
  int32_t queries, keys;
  const int32_t *random = nullptr, *lengths = nullptr;
  uint64_t site = 0;
  int64_t *seed = nullptr, *offset = nullptr;
  int32_t *query_lengths = nullptr, *key_lengths = nullptr;
};
void prepare_attention(Device* device, const AttentionExtras& extras);

// Zeroes rows of bf16 results by the number of keys that each sample has, which may be 0: of a result with a row for
// each key (dk, dv) the rows of masked keys, which cuDNN leaves as they were; of one with a row for each query (o, dq)
// the rows of samples without a key.
struct MaskedRows {
  void* data;             // bf16 [batch, length, width]
  int64_t length, width;  // width is a multiple of 8
  int64_t sample, row;    // strides in elements, multiples of 8; data is aligned to 16 bytes
  bool of_keys;
};
void zero_masked_rows(Device* device, int64_t batch, const int32_t* lengths, std::span<const MaskedRows> results);

// [B, T, width] f32 with the strides given (the last is 1) to dense bf16, and back.
void pack_bf16(Device* device, const TensorView& from, void* to);
void unpack_bf16(Device* device, const void* from, const TensorView& to);

}  // namespace linnet
