// Reports a call that cannot tick, as Phase does, from a thread of its own.
#pragma once
#include <future>
#include "base/log.h"
#include "base/thread_pool.h"

namespace linnet {
class TimedPhase {
 public:
  explicit TimedPhase(std::string what, std::chrono::milliseconds elsewhere = Phase::kPatience)
      : phase_(std::move(what), elsewhere), thread_(start_thread([this, ended = ended_.get_future().share()] {
          while (ended.wait_for(std::chrono::milliseconds(200)) == std::future_status::timeout) phase_.tick();
        })) {}
  ~TimedPhase() { ended_.set_value(), thread_.join(); }

 private:
  Phase phase_;
  std::promise<void> ended_;
  std::thread thread_;
};
}  // namespace linnet
