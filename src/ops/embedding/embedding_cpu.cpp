#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/embedding.h"
#include "ops/embedding/embedding.h"
#include "ops/stored_operands.h"

namespace linnet {
namespace {

void check_ids(const TensorView& ids, int64_t vocab_size) {
  const int32_t* id = ids.as<const int32_t>();
  for (int64_t i = 0; i < ids.elements(); ++i)
    if (id[i] < 0 || id[i] >= vocab_size)
      fail_user("token id " + std::to_string(id[i]) + " is outside the vocabulary of " + std::to_string(vocab_size));
}

void run_reference(const KernelArgs& args) {
  const int64_t width = args.out[0].shape()[-1];
  check_ids(args.in[1], args.in[0].shape()[0]);
  for_float(args.out[0].type.dtype, [&]<class T>() {
    for (int64_t i = 0; i < args.in[1].elements(); ++i)
      std::copy_n(args.in[0].as<T>() + args.in[1].as<int32_t>()[i] * width, width, args.out[0].as<T>() + i * width);
  });
}

void start_table(const KernelArgs& args) {
  if (!args.node.attrs.as<EmbeddingGradAttrs>().accumulate)
    std::memset(args.out[0].data, 0, args.out[0].type.bytes());
  else if (args.in[2].data != args.out[0].data)
    std::memcpy(args.out[0].data, args.in[2].data, args.out[0].type.bytes());
}

void run_grad_reference(const KernelArgs& args) {
  start_table(args);
  const int64_t width = args.in[0].shape()[-1], padding = args.node.attrs.as<EmbeddingGradAttrs>().padding;
  for_float(args.out[0].type.dtype, [&]<class T>() {
    for (int64_t i = 0; i < args.in[1].elements(); ++i) {
      if (args.in[1].as<int32_t>()[i] == padding) continue;
      T* row = args.out[0].as<T>() + args.in[1].as<int32_t>()[i] * width;
      for (int64_t j = 0; j < width; ++j) row[j] += args.in[0].as<T>()[i * width + j];
    }
  });
}

void run(const KernelArgs& args) {
  check_ids(args.in[1], args.in[0].shape()[0]);
  gather_rows(args.in[1].elements(), args.out[0].shape()[-1], args.in[0].as<float>(), args.in[1].as<int32_t>(),
              mutable_stored(args.out[0]), args.pool);
}

void run_grad(const KernelArgs& args) {
  start_table(args);
  scatter_add_rows(args.in[1].elements(), args.in[0].shape()[-1], stored(args.in[0]), args.in[1].as<int32_t>(),
                   args.out[0].as<float>(), args.pool,
                   static_cast<int32_t>(args.node.attrs.as<EmbeddingGradAttrs>().padding));
}

// Tables and their gradients are fp32.
bool has_f32_table(const KernelQuery& query) { return all_f32_or_bf16(query) && query.in[0].dtype == DType::kF32; }
bool has_f32_table_gradient(const KernelQuery& query) {
  return all_f32_or_bf16(query) && query.out[0].dtype == DType::kF32;
}

constexpr Kernel kKernels[] = {{"simd", has_f32_table, nullptr, run}, {"reference", nullptr, nullptr, run_reference}};
constexpr Kernel kGradKernels[] = {{"simd", has_f32_table_gradient, nullptr, run_grad},
                                   {"reference", nullptr, nullptr, run_grad_reference}};

}  // namespace

KernelList embedding_kernels() { return kKernels; }
KernelList embedding_grad_kernels() { return kGradKernels; }

}  // namespace linnet
