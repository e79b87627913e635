// -inf where a key is not visible: a piece of attention's decomposition.
#include "engine/kernels/cuda/index.cuh"
#include "engine/kernels/cuda/storage.cuh"
#include "engine/ops/attention/attention.h"

namespace linnet {
namespace {

// scores [B, heads, queries, keys]
struct ScoreMask {
  int64_t heads, queries, keys, window;
  bool causal;
  const int32_t *lengths, *starts;  // null: none
};

template <class T>
LINNET_DEVICE void mask_score(int64_t i, ScoreMask mask, const T* x, T* y) {
  const auto [row, key] = divided(i, mask.keys);
  const auto [head, query] = divided(row, mask.queries);
  const int64_t sample = divided(head, mask.heads).quotient, last = query + mask.keys - mask.queries;
  bool visible = !mask.lengths || key < mask.lengths[sample];
  if (mask.causal) visible = visible && key <= last;
  if (mask.starts) visible = visible && key >= mask.starts[sample * mask.queries + query];
  if (mask.window > 0) visible = visible && key > last - mask.window;
  y[i] = visible ? x[i] : from_float<T>(-INFINITY);
}

void run(const KernelArgs& args) {
  const auto& attrs = args.attrs<ScoreMaskAttrs>();
  const Shape& shape = args.in[0].shape();
  const ScoreMask mask{.heads = shape[1],
                       .queries = shape[2],
                       .keys = shape[3],
                       .window = attrs.window,
                       .causal = attrs.causal,
                       .lengths = attrs.has_lengths ? args.in[1].as<int32_t>() : nullptr,
                       .starts = attrs.has_starts ? args.in.back().as<int32_t>() : nullptr};
  for_storage(args.in[0].type.dtype, [&]<class T>() {
    launch_elements<mask_score<T>>(args.device, shape.elements(), mask, args.in[0].as<T>(), args.out[0].as<T>());
  });
}

}  // namespace

LINNET_KERNELS(mask_scores_cuda, {"elements", nullptr, nullptr, run})

}  // namespace linnet
