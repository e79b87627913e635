// A whole training run in this process, its allocations counted: after every bucket has run once neither the training
// thread nor the workers nor the prefetch allocate or map memory.
//
// This program's malloc and mmap stand before the C library's and count while they are told to. Its write() sees the
// lines of metrics.jsonl go by, and so knows at which step the run is.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <atomic>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include "tasks/task_table.h"
#include "temporary_folder.h"
#include "training/run/training_run.h"

namespace {
std::atomic<int64_t> first_counted{-1}, last_counted{-1};  // steps
std::atomic<bool> counting{false};
std::atomic<int64_t> allocations{0}, mappings{0}, steps_counted{0};

void note_allocation() {
  if (counting.load(std::memory_order_relaxed)) ++allocations;
}
}  // namespace

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) {
  note_allocation();
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  note_allocation();
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) {
  note_allocation();
  return __libc_realloc(memory, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  note_allocation();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  *memory = memalign(alignment, bytes);
  return *memory ? 0 : ENOMEM;
}

void* mmap(void* address, size_t length, int protection, int flags, int descriptor, off_t offset) noexcept {
  if (counting.load(std::memory_order_relaxed)) ++mappings;
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, length, protection, flags, descriptor, offset));
}

ssize_t write(int descriptor, const void* bytes, size_t size) {
  constexpr char kStep[] = "{\"step\":";
  if (size > sizeof kStep && std::memcmp(bytes, kStep, sizeof kStep - 1) == 0) {
    const int64_t step = std::atoll(static_cast<const char*>(bytes) + sizeof kStep - 1);
    counting = step >= first_counted && step < last_counted;
    steps_counted += counting;
  }
  return syscall(SYS_write, descriptor, bytes, size);
}
}

namespace linnet {
namespace {
class Allocation : public ::testing::Test {
 protected:
  Allocation() {
    config_.model = {.d_model = 32,
        .num_heads = 2,
        .num_encoder_layers = 1,
        .num_decoder_layers = 1,
        .d_ff = 64,
        .max_seq_len = 48,
        .dropout = 0.1};
    config_.data.task = "dates";
    config_.data.train_samples = 300;
    config_.data.valid_samples = 8;
    config_.data.tokenizer = "char";
    config_.data.joint_vocab = false;
    config_.data.batch_tokens = 400;
    config_.data.num_buckets = 4;
    config_.train.metric = "exact_match";
    config_.train.max_steps = 200;
    config_.train.eval_every = config_.train.save_every = 1000;
    config_.train.ema_decay = 0.99;
    config_.train.threads = 2;
  }

  // Counts over several epochs, after one in which every batch of every bucket was trained on.
  void run_and_count() {
    first_counted = 80, last_counted = 190;
    allocations = mappings = steps_counted = 0;
    run_training({config_, folder_ / "run", false, ""}, make_training_task);
    counting = false;
    EXPECT_EQ(steps_counted, 110);
    EXPECT_EQ(allocations, 0);
    EXPECT_EQ(mappings, 0);
  }

  const testing::TemporaryFolder folder_;
  Config config_;
};

TEST_F(Allocation, NoneInTrainingOnceEveryBucketHasRun) { run_and_count(); }

TEST_F(Allocation, NoneWithAccumulation) {
  config_.train.accumulate_steps = 2;
  run_and_count();
}

// The counters are not blind.
TEST_F(Allocation, IsSeenWhereThereIsOne) {
  counting = true;
  allocations = mappings = 0;
  void* (*volatile allocate)(size_t) = std::malloc;  // or the compiler leaves both calls out
  std::free(allocate(1000));
  ::munmap(::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
  counting = false;
  EXPECT_EQ(allocations, 1);
  EXPECT_EQ(mappings, 1);
}
}  // namespace
}  // namespace linnet
