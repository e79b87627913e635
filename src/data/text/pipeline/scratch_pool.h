// What threads need while they work on a text, kept for the next text of any thread.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

namespace linnet {

template <class Scratch>
class ScratchPool {
 public:
  // A scratch of its own for as long as a text takes.
  class Lease {
   public:
    explicit Lease(ScratchPool& pool) : pool_(pool) {
      {
        const std::lock_guard lock(pool_.mutex_);
        if (!pool_.idle_.empty()) {
          scratch_ = std::move(pool_.idle_.back());
          pool_.idle_.pop_back();
        }
      }
      if (!scratch_) scratch_ = std::make_unique<Scratch>();
    }
    ~Lease() {
      const std::lock_guard lock(pool_.mutex_);
      pool_.idle_.push_back(std::move(scratch_));
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Scratch& operator*() const { return *scratch_; }

   private:
    ScratchPool& pool_;
    std::unique_ptr<Scratch> scratch_;
  };

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> idle_;
};

}  // namespace linnet
