#include "base/process.h"
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cstring>
#include "base/log.h"
#include "base/thread_pool.h"

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
        ::signal(SIGINT, SIG_DFL);  // ignored where the test runs in the background
        catch_stop_signals();
        ::raise(SIGINT);
        ::raise(SIGTERM);
        ::_exit(1);
      },
      testing::KilledBySignal(SIGTERM), "");
}

TEST(SignalsDeathTest, BeforeThereIsSomethingToSaveTheFirstEndsWithALine) {
  EXPECT_EXIT(
      {
        announce_stop("nothing to save\n");
        ::raise(SIGHUP);
        ::_exit(1);
      },
      testing::KilledBySignal(SIGHUP), "nothing to save");
}

// By nohup, by a shell that starts a command in the background, or by `trap '' TERM`.
TEST(SignalsDeathTest, IgnoredOnesStayIgnored) {
  EXPECT_EXIT(
      {
        for (const int signal : {SIGHUP, SIGINT, SIGTERM}) ::signal(signal, SIG_IGN);
        announce_stop("nothing to save\n");
        ::raise(SIGTERM);
        catch_stop_signals();
        for (const int signal : {SIGHUP, SIGINT, SIGTERM}) ::raise(signal);
        default_stop_signals();
        ::raise(SIGINT);
        ::_exit(stop_requested() ? 1 : 42);
      },
      testing::ExitedWithCode(42), "");
}

// Work that may be abandoned is, before its next kernel; an update that has begun is finished.
TEST(SignalsDeathTest, StopPointsAbandonAnEvaluationAndNoUpdate) {
  const auto ends_early = [](bool updates) {
    ThreadPool pool(1);
    int done = 0;
    catch_stop_signals();
    ::raise(SIGTERM);
    pool.run(1, [&](int64_t, int) { ++done; });  // no stop points: nothing changes
    try {
      const StopPoints points(pool);
      if (updates) pool.pass_last_stop_point();
      pool.run(1, [&](int64_t, int) { ++done; });
    } catch (const Stopped&) {
      done += 10;
    }
    ::_exit(done);
  };
  EXPECT_EXIT(ends_early(false), testing::ExitedWithCode(11), "");
  EXPECT_EXIT(ends_early(true), testing::ExitedWithCode(2), "");
}

TEST(Log, WritesPlainLinesToStandardError) {
  testing::internal::CaptureStderr();
  log_info("100% of {braces} stay");
  log_warning("careful");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "linnet: 100% of {braces} stay\nlinnet: warning: careful\n");
}
}  // namespace
}  // namespace linnet
