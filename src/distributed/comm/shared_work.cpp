#include "distributed/comm/shared_work.h"
#include <algorithm>
#include "base/error.h"
#include "base/signals.h"
#include "distributed/comm/agreement.h"

namespace linnet {
namespace {

// Texts one after another, each behind its length and a space.
std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += std::to_string(text.size()) + " " + text;
  return all;
}

// The next of them; `at` goes on behind it.
std::string next_text(const std::string& all, size_t& at) {
  const size_t space = all.find(' ', at);
  const size_t length = std::stoul(all.substr(at, space - at));
  at = space + 1 + length;
  return all.substr(space + 1, length);
}

}  // namespace

void SharedWork::do_part(FunctionRef<void()> work) {
  if (world_.size() == 1) return work();
  bool is_stopped = false;
  run_on_all(world_, [&] {
    try {
      work();
    } catch (const Stopped&) {
      is_stopped = true;
    }
  });
  if (any_rank(world_, is_stopped)) throw Stopped{};
}

std::vector<int64_t> SharedWork::own_items(int64_t count) const {
  std::vector<int64_t> items;
  for (int64_t item = world_.rank(); item < count; item += world_.size()) items.push_back(item);
  return items;
}

std::vector<double> SharedWork::numbers(int64_t count, int64_t width,
                                        FunctionRef<void(int64_t item, std::span<double> result)> work) {
  const int64_t ranks = world_.size(), most = (count + ranks - 1) / ranks;  // items of a rank
  const auto size = static_cast<size_t>(width);
  std::vector<double> own(static_cast<size_t>(most) * size), all(own.size() * static_cast<size_t>(ranks));
  const auto place = [&](std::vector<double>& values, int64_t index) {
    return std::span(values).subspan(static_cast<size_t>(index) * size, size);
  };
  do_part([&] {
    for (const int64_t item : own_items(count)) work(item, place(own, item / ranks));
  });
  all_gather(world_, std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)));
  std::vector<double> results(static_cast<size_t>(count) * size);
  for (int64_t item = 0; item < count; ++item)
    std::ranges::copy(place(all, item % ranks * most + item / ranks), place(results, item).begin());
  return results;
}

std::vector<std::string> SharedWork::texts(int64_t count,
                                           FunctionRef<std::vector<std::string>(std::span<const int64_t> items)> work) {
  const std::vector<int64_t> items = own_items(count);
  std::vector<std::string> own;
  do_part([&] {
    own = work(items);
    if (own.size() != items.size()) fail_internal("shared work gave another number of texts than it has items");
  });
  const std::vector<std::string> all = gather_texts(world_, joined(own));
  std::vector<size_t> next(all.size());
  std::vector<std::string> results;
  for (int64_t item = 0; item < count; ++item) {
    const auto rank = static_cast<size_t>(item % world_.size());
    results.push_back(next_text(all[rank], next[rank]));
  }
  return results;
}

std::string SharedWork::text(FunctionRef<std::string()> work) {
  const int last = world_.size() - 1;
  std::string made;
  do_part([&] {
    if (world_.rank() == last) made = work();
  });
  return broadcast_text(world_, last, std::move(made));
}

}  // namespace linnet
