// CUDA kernels on the CPU, for tests: every thread of a block is a fiber, blocks run one after another. Barriers and
// shuffles switch between fibers, so a missing barrier, an index out of bounds (under AddressSanitizer) or a value that
// depends on the order of threads (set_reversed) shows. Nothing here is fast.
#pragma once
#include <bit>
#include <cmath>
#include <cstring>
#include <source_location>
#include <type_traits>
#include <utility>
#include "base/functions.h"
#include "cuda_emulation/emulated_device.h"

#define __global__
#define __device__
#define __host__
// In one section, so that a block can be started with nothing in its shared memory. g++ 14 wants all functions with
// such variables to be static or all of them to be inline.
#define __shared__ static __attribute__((section("linnet_shared")))
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __align__(n) alignas(n)
#define LINNET_DEVICE inline

namespace linnet {
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}  // NOLINT: as CUDA's
};
struct float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(8) uint2 {
  unsigned x, y;
};

namespace emulation {
struct Indices {
  dim3 thread, block, block_size, grid;
};
using Site = std::source_location;

const Indices& here();  // of the thread that runs
// Barriers. Internal error when threads wait together that called from different lines: on a GPU such threads exchange
// nothing, or wait for ever.
void sync_block(Site site);
void sync_warp(Site site);
void begin();  // Internal error when a thread of a kernel never calls it
// A value of every lane of this warp, kept until the warp's next barrier: own slot to write, another's to read.
// Internal error when the other lane has ended: on a GPU its value is undefined.
unsigned char* lane_slot(int lane);
int lane();
// Which lanes that have not ended voted for it.
unsigned ballot(bool vote, Site site);
unsigned char* shared_memory();

// Runs every thread of every block. Internal error when the threads of a block wait for each other in vain.
void run(dim3 grid, dim3 block, size_t shared, FunctionRef<void()> kernel);

template <class T> T exchange(T value, int from, Site site) {
  static_assert(sizeof(T) <= 16 && std::is_trivially_copyable_v<T>);
  std::memcpy(lane_slot(lane()), &value, sizeof value);
  sync_warp(site);
  T result = value;
  if (from >= 0 && from < 32) std::memcpy(&result, lane_slot(from), sizeof result);
  sync_warp(site);
  return result;
}
}  // namespace emulation

inline void begin_kernel() { emulation::begin(); }
template <class... Params, class... Args>
void launch(Device* device, void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared, Args... args) {
  queue_kernel(device, [=] { emulation::run(grid, block, shared, [&] { kernel(static_cast<Params>(args)...); }); });
}
template <class T> T* dynamic_shared() { return reinterpret_cast<T*>(emulation::shared_memory()); }

// The last parameter of each is the caller's line.
inline void __syncthreads(emulation::Site site = emulation::Site::current()) { emulation::sync_block(site); }
inline void __syncwarp(unsigned = ~0u, emulation::Site site = emulation::Site::current()) {
  emulation::sync_warp(site);
}
template <class T>
T __shfl_sync(unsigned, T value, int from, int width = 32, emulation::Site site = emulation::Site::current()) {
  return emulation::exchange(value, emulation::lane() / width * width + from % width, site);
}
template <class T> T __shfl_xor_sync(unsigned, T value, int mask, emulation::Site site = emulation::Site::current()) {
  return emulation::exchange(value, emulation::lane() ^ mask, site);
}
template <class T> T __shfl_down_sync(unsigned, T value, int by, emulation::Site site = emulation::Site::current()) {
  return emulation::exchange(value, emulation::lane() + by < 32 ? emulation::lane() + by : emulation::lane(), site);
}
template <class T> T __shfl_up_sync(unsigned, T value, int by, emulation::Site site = emulation::Site::current()) {
  return emulation::exchange(value, emulation::lane() - by >= 0 ? emulation::lane() - by : emulation::lane(), site);
}
inline unsigned __ballot_sync(unsigned, bool vote, emulation::Site site = emulation::Site::current()) {
  return emulation::ballot(vote, site);
}
// Only integers: sums of floats would depend on the order.
inline int atomicAdd(int* location, int value) { return std::exchange(*location, *location + value); }
inline unsigned atomicAdd(unsigned* location, unsigned value) { return std::exchange(*location, *location + value); }
inline int atomicMax(int* location, int value) {
  return std::exchange(*location, *location > value ? *location : value);
}
inline int atomicMin(int* location, int value) {
  return std::exchange(*location, *location < value ? *location : value);
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __ffs(int x) { return x ? std::countr_zero(static_cast<unsigned>(x)) + 1 : 0; }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline void sincospif(float x, float* sine, float* cosine) {
  *sine = static_cast<float>(std::sin(static_cast<double>(x) * 3.141592653589793));
  *cosine = static_cast<float>(std::cos(static_cast<double>(x) * 3.141592653589793));
}
inline float __fdividef(float a, float b) { return a / b; }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
template <class T> T __ldg(const T* location) { return *location; }
template <class T> T __ldcs(const T* location) { return *location; }
template <class T> void __stcs(T* location, T value) { *location = value; }
using std::max;
using std::min;
}  // namespace linnet

#define threadIdx (::linnet::emulation::here().thread)
#define blockIdx (::linnet::emulation::here().block)
#define blockDim (::linnet::emulation::here().block_size)
#define gridDim (::linnet::emulation::here().grid)
