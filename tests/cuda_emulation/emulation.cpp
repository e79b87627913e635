#include "cuda_emulation/emulation.cuh"
#include <setjmp.h>
#include <ucontext.h>
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>
#include "base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define LINNET_FIBER_ASAN 1
#endif

// The variables in shared memory (the linker's names for begin and end of their section).
extern unsigned char __start_linnet_shared[], __stop_linnet_shared[];  // NOLINT

namespace linnet::emulation {
namespace {
// What a block has at least on the GPUs that Linnet runs on (compute capability 8.6).
constexpr size_t kStack = 64 * 1024, kShared = 99 * 1024;
constexpr int kWarpSize = 32;

enum class State { kReady, kAtBlockBarrier, kAtWarpBarrier, kDone };

// A fiber is entered once through its context and from then on by longjmp, which unlike swapcontext makes no system
// call. It never ends: each block gives it a thread to be.
struct Fiber {
  ucontext_t context;
  jmp_buf location;
  bool entered = false, begun = false;
  std::unique_ptr<std::byte[]> stack = std::make_unique<std::byte[]>(kStack);
  dim3 index;
  State state = State::kDone;
  Site site;  // of the barrier where it waits
  std::array<unsigned char, 16> slot{};
};

struct Machine {
  std::vector<std::unique_ptr<Fiber>> fibers;
  jmp_buf scheduler;
  Indices indices;
  FunctionRef<void()>* kernel = nullptr;
  int count = 0, current = 0;
  bool reversed = false;
  std::exception_ptr problem;
  alignas(16) std::array<unsigned char, kShared> shared;
  const void* scheduler_stack = nullptr;
  size_t scheduler_stack_size = 0;
};

Machine& machine() {
  static Machine machine;
  return machine;
}

Fiber& fiber(int i) { return *machine().fibers[static_cast<size_t>(i)]; }

void to_scheduler() {
  Machine& m = machine();
  Fiber& own = fiber(m.current);
#ifdef LINNET_FIBER_ASAN
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, m.scheduler_stack, m.scheduler_stack_size);
#endif
  if (!_setjmp(own.location)) _longjmp(m.scheduler, 1);
#ifdef LINNET_FIBER_ASAN
  __sanitizer_finish_switch_fiber(fake, &m.scheduler_stack, &m.scheduler_stack_size);
#endif
}

void fiber_main() {
  Machine& m = machine();
#ifdef LINNET_FIBER_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &m.scheduler_stack, &m.scheduler_stack_size);
#endif
  for (;;) {
    try {
      (*m.kernel)();
    } catch (...) {
      m.problem = std::current_exception();
    }
    fiber(m.current).state = State::kDone;
    to_scheduler();
  }
}

void enter(Fiber& fiber) {
  fiber.entered = true;
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStack;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, fiber_main, 0);
  setcontext(&fiber.context);
}

void to_fiber(int i) {
  Machine& m = machine();
  m.current = i;
  m.indices.thread = fiber(i).index;
#ifdef LINNET_FIBER_ASAN
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, fiber(i).stack.get(), kStack);
#endif
  if (!_setjmp(m.scheduler)) {
    if (fiber(i).entered) _longjmp(fiber(i).location, 1);
    else enter(fiber(i));
  }
#ifdef LINNET_FIBER_ASAN
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

bool same(const Site& a, const Site& b) {
  return a.line() == b.line() && a.column() == b.column() && std::strcmp(a.file_name(), b.file_name()) == 0;
}
std::string text_of(const Site& site) { return std::string(site.file_name()) + ":" + std::to_string(site.line()); }

// A barrier opens when every thread that has not ended waits at it.
bool open_barrier(int begin, int end, State barrier) {
  const Fiber* first = nullptr;
  for (int i = begin; i < end; ++i) {
    const Fiber& f = fiber(i);
    if (f.state != barrier && f.state != State::kDone) return false;
    if (f.state != barrier) continue;
    if (!first) first = &f;
    if (!same(first->site, f.site))
      fail_internal("threads of one " + std::string(barrier == State::kAtWarpBarrier ? "warp" : "block") +
                    " wait at different lines: " + text_of(first->site) + " and " + text_of(f.site));
  }
  if (!first) return false;
  for (int i = begin; i < end; ++i)
    if (fiber(i).state == barrier) fiber(i).state = State::kReady;
  return true;
}

bool open_barriers(int count) {
  bool opened = open_barrier(0, count, State::kAtBlockBarrier);
  for (int warp = 0; warp < count; warp += kWarpSize)
    opened |= open_barrier(warp, std::min(warp + kWarpSize, count), State::kAtWarpBarrier);
  return opened;
}

bool run_ready(int count) {
  Machine& m = machine();
  bool ran = false;
  for (int at = 0; at < count; ++at) {
    const int i = m.reversed ? count - 1 - at : at;
    if (fiber(i).state != State::kReady) continue;
    to_fiber(i);
    ran = true;
    if (m.problem) std::rethrow_exception(std::exchange(m.problem, nullptr));
  }
  return ran;
}

void start_fibers(dim3 block) {
  Machine& m = machine();
  while (m.fibers.size() < static_cast<size_t>(m.count)) m.fibers.push_back(std::make_unique<Fiber>());
  for (int i = 0; i < m.count; ++i) {
    Fiber& f = fiber(i);
    const auto at = static_cast<unsigned>(i);
    f.index = {at % block.x, at / block.x % block.y, at / block.x / block.y};
    f.state = State::kReady, f.begun = false;
  }
}

void run_block(dim3 block) {
  Machine& m = machine();
  m.shared.fill(0xff);  // NaN: what nothing wrote must not be read
  std::fill(__start_linnet_shared, __stop_linnet_shared, 0xff);
  start_fibers(block);
  const auto all_done = [&] {
    for (int i = 0; i < m.count; ++i)
      if (fiber(i).state != State::kDone) return false;
    return true;
  };
  while (!all_done())
    if (!run_ready(m.count) && !open_barriers(m.count))
      fail_internal("the threads of a block wait at different barriers");
  for (int i = 0; i < m.count; ++i)
    if (!fiber(i).begun) fail_internal("a kernel without begin_kernel() does not wait for the one before it");
}

void wait_at(State barrier, const Site& site) {
  Fiber& own = fiber(machine().current);
  own.state = barrier;
  own.site = site;
  to_scheduler();
}
}  // namespace

const Indices& here() { return machine().indices; }
void begin() { fiber(machine().current).begun = true; }
void sync_block(Site site) { wait_at(State::kAtBlockBarrier, site); }
void sync_warp(Site site) { wait_at(State::kAtWarpBarrier, site); }
int lane() { return machine().current % kWarpSize; }
unsigned char* lane_slot(int lane) {
  const int other = machine().current / kWarpSize * kWarpSize + lane;
  if (other >= machine().count || fiber(other).state == State::kDone)
    fail_internal("a thread asks for the value of lane " + std::to_string(lane) + ", which has ended or never was");
  return fiber(other).slot.data();
}
unsigned ballot(bool vote, Site site) {
  *lane_slot(lane()) = vote;
  sync_warp(site);
  const int first = machine().current / kWarpSize * kWarpSize;
  unsigned votes = 0;
  for (int i = 0; i < kWarpSize && first + i < machine().count; ++i)
    if (fiber(first + i).state != State::kDone && *lane_slot(i)) votes |= 1u << i;
  sync_warp(site);
  return votes;
}
unsigned char* shared_memory() { return machine().shared.data(); }
void set_reversed(bool reversed) { machine().reversed = reversed; }

void run(dim3 grid, dim3 block, size_t shared, FunctionRef<void()> kernel) {
  Machine& m = machine();
  const unsigned threads = block.x * block.y * block.z;
  if (threads > 1024) fail_internal("a block of " + std::to_string(threads) + " threads");
  if (shared > kShared) fail_internal("a block with " + std::to_string(shared) + " bytes of shared memory");
  if (grid.y > 65535 || grid.z > 65535) fail_internal("a grid of more than 65535 blocks along y or z");
  m.count = static_cast<int>(threads);
  m.kernel = &kernel;
  const uint64_t blocks = static_cast<uint64_t>(grid.x) * grid.y * grid.z;
  for (uint64_t at = 0; at < blocks; ++at) {
    const auto i = m.reversed ? blocks - 1 - at : at;
    m.indices = {{},
        {static_cast<unsigned>(i % grid.x), static_cast<unsigned>(i / grid.x % grid.y),
            static_cast<unsigned>(i / grid.x / grid.y)},
        block, grid};
    try {
      run_block(block);
    } catch (...) {
      m.fibers.clear();  // those that wait would go on with this kernel
      throw;
    }
  }
}
}  // namespace linnet::emulation
