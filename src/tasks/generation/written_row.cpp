#include "tasks/generation/written_row.h"

#include <algorithm>

namespace linnet {

std::string WrittenRow::take(const std::string& piece, bool last) {
  pending_ += piece;
  size_t first = pending_.npos;
  for (const std::string& stop : stops_) first = std::min(first, pending_.find(stop));
  stopped_ = first != pending_.npos;
  const size_t size = stopped_ ? first : pending_.size() - (last ? 0 : held_back());
  const std::string certain = pending_.substr(0, size);
  pending_.erase(0, size);
  text_ += certain;
  return certain;
}

size_t WrittenRow::held_back() const {
  size_t most = 0;
  for (const std::string& stop : stops_)
    for (size_t size = std::min(stop.size() - 1, pending_.size()); size > most; --size)
      if (pending_.ends_with(std::string_view(stop).substr(0, size))) most = size;
  return most;
}

WrittenText written_text(const Continuation& result, const WrittenRow& row, bool go_on) {
  WrittenText text{.text = row.text(),
                   .tokens = result.tokens,
                   .log_probabilities = result.log_probabilities,
                   .log_probability = result.log_probability,
                   .end_token = result.end_token,
                   .end = go_on ? TextEnd::kLength : TextEnd::kInterrupted};
  if (row.stopped()) text.end = TextEnd::kStopText;
  if (result.ended) text.end = TextEnd::kEndToken;
  return text;
}

}  // namespace linnet
