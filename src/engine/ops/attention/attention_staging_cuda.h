// Further operands of cuDNN's attention, made on the device.
#pragma once
#include <span>
#include "engine/ops/kernel.h"

namespace linnet {
// seed: the step's dropout key, from `random` (null: 0); offset: 0; query_lengths: `queries` for each sample;
// key_lengths: `lengths` clamped to [1, keys]. cuDNN gives NaN for a sample without a key (NVIDIA/cudnn-frontend#943),
// so it gets one, and zero_masked_rows() removes the result.
struct AttentionExtras {
  int64_t batch;
  int32_t queries, keys;
  const int32_t *random = nullptr, *lengths = nullptr;
  uint64_t site = 0;
  int64_t *seed = nullptr, *offset = nullptr;
  int32_t *query_lengths = nullptr, *key_lengths = nullptr;
};
void prepare_attention(Device* device, const AttentionExtras& extras);

// Zeroes rows of bf16 results by each sample's number of keys, which may be 0: in dk and dv, rows of masked keys, which
// cuDNN does not write; in o and dq, rows of samples without a key.
struct MaskedRows {
  void* data;             // bf16 [batch, length, width]
  int64_t length, width;  // width is a multiple of 8
  int64_t sample, row;    // strides in elements, multiples of 8; data is aligned to 16 bytes
  bool of_keys;
};
void zero_masked_rows(Device* device, int64_t batch, const int32_t* lengths, std::span<const MaskedRows> results);

// Strided [B, T, width] f32 (last stride 1) to dense bf16, and back.
void pack_bf16(Device* device, const TensorView& from, void* to);
void unpack_bf16(Device* device, const void* from, const TensorView& to);
}  // namespace linnet
