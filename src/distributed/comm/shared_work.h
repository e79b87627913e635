// Work that ranks divide, of which every rank needs all results: evaluations. It is a list of items, of which rank r
// does r, r + ranks, r + 2 ranks, ...; the results are put together in the order of the items, so that what is made of
// them does not depend on the number of ranks.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>
#include "base/function_ref.h"
#include "distributed/comm/communicator.h"

namespace linnet {

class SharedWork {
 public:
  explicit SharedWork(Communicator& world) : world_(world) {}
  static SharedWork alone() { return SharedWork(single_process()); }

  // All ranks call these, in the same order. An error on any rank is an AgreedError on all; where a rank leaves its
  // part by Stopped (base/signals.h), all throw Stopped.

  // Calls work(item, result) for this rank's items of `count`; `result` are `width` numbers. Returns those of all
  // items.
  std::vector<double> numbers(int64_t count, int64_t width,
                              FunctionRef<void(int64_t item, std::span<double> result)> work);
  // Calls work(items) with all of this rank's items of `count`, for a text of each. Returns those of all items.
  std::vector<std::string> texts(int64_t count,
                                 FunctionRef<std::vector<std::string>(std::span<const int64_t> items)> work);
  // A text that one rank makes: the last one, which has the fewest items.
  std::string text(FunctionRef<std::string()> work);

 private:
  void do_part(FunctionRef<void()> work);
  std::vector<int64_t> own_items(int64_t count) const;

  Communicator& world_;
};

}  // namespace linnet
