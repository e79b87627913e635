#include "base/phase.h"

#include "base/log.h"

namespace linnet {

void Phase::show(int64_t done, int64_t total) {
  const auto now = Clock::now();
  next_ = now + kRedraw;
  if (!log_shows_info() || !line_.usable()) {
    log_info(what_ + " ...");
    next_ = Clock::time_point::max();  // once is enough
    return;
  }
  std::string text = what_;
  if (total > 0)
    text += " " + std::to_string(100 * done / total) + "%";
  else if (done > 0)
    text += " " + std::to_string(done);
  line_.draw(text + "  " + std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now - start_).count()) +
             " s");
}

}  // namespace linnet
