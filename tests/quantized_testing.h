// What the tests of quantized weights share: packed weights, their products, and every way to multiply.
#pragma once
#include <vector>

#include "base/thread_pool.h"
#include "engine/kernels/quantized/gemm_int8.h"
#include "kernel_testing.h"

namespace linnet {

struct Packed {
  Packed(WeightFormat format, int64_t rows, int64_t columns, const std::vector<float>& w)
      : shape{format, rows, columns}, memory(shape.bytes()) {
    ThreadPool pool(2);
    pack_weight(shape, w.data(), memory.data(), pool);
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
template <class Body>
void for_every_way(const Body& body) {
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
