// What a generated kernel gets (engine/ops/pointwise/pointwise_source.h). Generated sources hold this struct as text,
// too.
#pragma once

namespace linnet {

struct PointwiseArguments {
  long long count;
  const void* in[16];
  long long size[16];  // of a suffix, its elements; of a prefix, how often each is repeated
  void* out;
};

}  // namespace linnet
