#include "engine/kernels/random/philox.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/random/philox_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "engine/kernels/random/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

void values16(uint64_t key, uint32_t first_block, int64_t blocks, uint32_t c1, uint32_t c2, uint32_t c3,
              uint16_t* values) {
  PhiloxRow16(first_block, blocks, c1, c2, c3, key, values);
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {

HWY_EXPORT(values16);

void philox_values16(uint64_t key, uint32_t first_block, int64_t blocks, uint32_t c1, uint32_t c2, uint32_t c3,
                     uint16_t* values) {
  HWY_DYNAMIC_DISPATCH(values16)(key, first_block, blocks, c1, c2, c3, values);
}

}  // namespace linnet
#endif
