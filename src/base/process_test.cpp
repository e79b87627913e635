#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "base/log.h"
#include "base/process_memory.h"
#include "base/signals.h"

namespace linnet {
namespace {

TEST(ProcessMemory, SeesWhatIsTouchedAndRemembersThePeak) {
  constexpr size_t kBytes = 64 << 20;
  const uint64_t before = resident_bytes();
  // Mapped directly: sanitizers keep freed heap memory for a while.
  void* block = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(block, MAP_FAILED);
  std::memset(block, 1, kBytes);
  EXPECT_GE(resident_bytes(), before + kBytes / 10 * 9);
  ::munmap(block, kBytes);
  EXPECT_LT(resident_bytes(), before + kBytes / 2);
  EXPECT_GE(peak_resident_bytes(), before + kBytes / 10 * 9);
}

TEST(SignalsDeathTest, TheFirstAsksTheSecondEnds) {
  EXPECT_EXIT(
      {
        catch_stop_signals();
        if (stop_requested()) ::_exit(1);
        ::raise(SIGTERM);
        ::_exit(stop_requested() ? 42 : 2);
      },
      testing::ExitedWithCode(42), "");
  EXPECT_EXIT(
      {
        catch_stop_signals();
        ::raise(SIGINT);
        ::raise(SIGTERM);
        ::_exit(1);
      },
      testing::KilledBySignal(SIGTERM), "");
}

TEST(Log, WritesPlainLinesToStandardError) {
  testing::internal::CaptureStderr();
  log_info("100% of {braces} stay");
  log_warning("careful");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "linnet: 100% of {braces} stay\nlinnet: warning: careful\n");
}

}  // namespace
}  // namespace linnet
