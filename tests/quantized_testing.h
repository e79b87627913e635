// What the tests of quantized weights share: packed weights, their products, and every way to multiply.
#pragma once
#include <algorithm>
#include <random>
#include <vector>
#include "base/thread_pool.h"
#include "engine/kernels/quantized/packed_weight.h"
#include "engine/kernels/quantized/products.h"
#include "kernel_testing.h"

namespace linnet {
// What pack_row() was given.
inline void unpack_row(const PackedWeight& weight, int64_t row, int8_t* codes, float* scales) {
  constexpr int64_t kPanel = PackedShape::kPanel, kBlock = PackedShape::kBlock;
  const PackedShape& shape = weight.shape;
  const BlockFormat blocks = block_format(shape.format);
  const int64_t panel = row / kPanel;
  for (int64_t block = 0; block < shape.blocks(); ++block) {
    int8_t some[kBlock];
    block_codes(blocks, weight.codes(panel) + block * shape.block_bytes(), row % kPanel, some);
    std::copy_n(some, std::min(kBlock, shape.columns - block * kBlock), codes + block * kBlock);
    if (shape.format != WeightFormat::kInt8)
      scales[block] = block_number(blocks, weight.block_scales(panel), block, row % kPanel, 0);
  }
  if (shape.format == WeightFormat::kInt8) scales[0] = weight.row_scales()[row];
}

struct Packed {
  Packed(WeightFormat format, int64_t rows, int64_t columns, const std::vector<float>& w)
      : shape{format, rows, columns}, memory(shape.bytes()) {
    ThreadPool pool(2);
    pack_weight(shape, w.data(), memory.data(), pool);
  }
  // Of a format of files: random blocks.
  explicit Packed(const PackedShape& of) : shape(of), memory(shape.bytes()) {
    std::mt19937 random(11);
    const PackedShape parts[] = {shape.head(), shape.tail()};
    for (const PackedShape& part : parts) {
      const int64_t bytes = block_format(part.format).file_bytes();
      const size_t begin = blocks.size();
      blocks.resize(begin + static_cast<size_t>(part.rows * file_row_bytes(part.format, part.columns)));
      for (size_t i = begin; i < blocks.size(); ++i) blocks[i] = static_cast<std::byte>(random());
      const int64_t numbers = part.format == WeightFormat::kQ6K ? 208 : 0;
      for (auto at = static_cast<int64_t>(begin) + numbers; at < std::ssize(blocks);
           at += bytes) {  // small fp16 numbers
        blocks[static_cast<size_t>(at + 1)] = static_cast<std::byte>(random() % 4 * 64 + 1 + random() % 32);
        if (block_format(part.format).minimum)
          blocks[static_cast<size_t>(at + 3)] = static_cast<std::byte>(random() % 4 * 64 + 1 + random() % 32);
      }
    }
    ThreadPool pool(2);
    pack_blocks(shape, blocks.data(), memory.data(), pool);
  }
  PackedWeight weight() { return {shape, memory.data()}; }
  std::vector<int8_t> codes(int64_t row) {
    std::vector<int8_t> q(static_cast<size_t>(shape.columns));
    std::vector<float> scales(static_cast<size_t>(shape.scales_of_row()));
    unpack_row(weight(), row, q.data(), scales.data());
    return q;
  }
  std::vector<float> values() {
    ThreadPool pool(2);
    std::vector<float> out(static_cast<size_t>(shape.rows * shape.columns));
    dequantize_rows(weight(), 0, shape.rows, out.data(), pool);
    return out;
  }
  PackedShape shape;
  AlignedBytes memory;
  std::vector<std::byte> blocks = {};  // as a file has them
};

inline std::vector<float> multiply(Packed& w, const std::vector<float>& a, GemmArgs args, ThreadPool& pool) {
  std::vector<float> c(static_cast<size_t>(args.m * w.shape.rows), kNan);
  args.a = a.data(), args.lda = w.shape.columns, args.c = c.data(), args.ldc = w.shape.rows, args.trans_b = true;
  AlignedBytes workspace(
      quantized_gemm_workspace(w.shape, args.m, args.m <= kFewRows || args.independent_rows, pool.size()));
  quantized_gemm(args, w.weight(), workspace.data(), pool);
  return c;
}

// The instruction sets, and the best one once more without VNNI.
template <class Body> void for_every_way(const Body& body) {
  for (const auto& isa : available_isas()) {
    const ForcedIsa forced(isa);
    for (const bool without : {false, true}) {
      if (without && !has_vnni()) continue;
      disable_vnni_for_test(without);
      SCOPED_TRACE(isa + (without ? " without VNNI" : ""));
      body();
    }
    disable_vnni_for_test(false);
  }
}
}  // namespace linnet
