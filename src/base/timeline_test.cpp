#include "base/timeline.h"
#include <gtest/gtest.h>
#include <thread>
#include "base/thread_pool.h"

namespace linnet {
namespace {
TEST(Timeline, RecordsOnlyWhileActiveAndATrackForEachThread) {
  { const HostSpan before("before"); }
  Timeline::start();
  { const HostSpan span("main work", SpanKind::kData, 7); }
  std::thread other([] {
    Timeline::name_thread("loader");
    const HostSpan span("load");
  });
  other.join();
  Timeline::stop();
  { const HostSpan after("after"); }
  const std::vector<Track> tracks = Timeline::take();
  ASSERT_EQ(tracks.size(), 2u);
  ASSERT_EQ(tracks[0].spans.size(), 1u);
  EXPECT_STREQ(tracks[0].spans[0].name, "main work");
  EXPECT_EQ(tracks[0].spans[0].index, 7);
  EXPECT_LE(tracks[0].spans[0].begin, tracks[0].spans[0].end);
  EXPECT_EQ(tracks[1].thread, "loader");
  EXPECT_STREQ(tracks[1].spans[0].name, "load");
  EXPECT_TRUE(Timeline::take().empty());
}

TEST(Timeline, WorkersOfAPoolAreRecordedWithTheNodeTheyWorkOn) {
  ThreadPool pool(2);
  const int plan = 0;
  Timeline::start();
  Timeline::set_work(&plan, 3);
  std::atomic<bool> helped{false};
  while (!helped)  // a busy machine may wake the worker late
    pool.run(64, [&](int64_t, int worker) {
      if (worker == 1) helped = true;
      std::this_thread::yield();
    });
  Timeline::stop();
  const std::vector<Track> tracks = Timeline::take();
  ASSERT_FALSE(tracks.empty());
  EXPECT_EQ(tracks.back().thread, "worker 1");
  EXPECT_EQ(tracks.back().spans[0].plan, &plan);
  EXPECT_EQ(tracks.back().spans[0].index, 3);
}
}  // namespace
}  // namespace linnet
