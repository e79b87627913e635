#include "data/text/pipeline/subword_model.h"
#include <algorithm>
#include <bit>
#include "base/fail.h"

namespace linnet {

void check_token(TokenId id, int64_t vocab_size) {
  if (id < 0 || id >= vocab_size) fail_internal("token ", id, " is outside the vocabulary of ", vocab_size);
}

Vocabulary::Vocabulary(const Tables& tables, const std::string& where) : tables_(tables) {
  const auto fail = [&](const char* what) { fail_user(where, " is damaged: ", what); };
  if (tables.locations.size() > static_cast<size_t>(kMaxId) + 1 || tables.text.size() >= kGap)
    fail("its vocabulary is too large");
  for (const Location& location : tables.locations) {
    if (location.begin == kGap) continue;
    if (location.begin > tables.text.size() || location.length > tables.text.size() - location.begin)
      fail("a piece lies outside of the text");
    longest_ = std::max<size_t>(longest_, location.length);
  }
  if (tables.slots.empty()) return;
  if (!std::has_single_bit(tables.slots.size())) fail("its slots are no power of two");
  size_t empty = 0;
  for (const Slot& slot : tables.slots) {
    empty += slot.id < 0;
    if (slot.id >= 0 && !has(slot.id)) fail("a slot has an id that has no piece");
  }
  if (empty == 0) fail("all of its slots are taken");  // a search would not end
}

bool Vocabulary::add(std::string_view piece, TokenId id) {
  if (id < 0 || id > kMaxId || has(id) || text_.size() + piece.size() >= kGap) return false;
  const bool known = find(piece) >= 0;
  if (id >= size()) locations_.resize(static_cast<size_t>(id) + 1);
  locations_[static_cast<size_t>(id)] = {static_cast<uint32_t>(text_.size()), static_cast<uint32_t>(piece.size())};
  text_.insert(text_.end(), piece.begin(), piece.end());
  longest_ = std::max(longest_, piece.size());
  tables_ = {text_, locations_, slots_};
  if (known) return true;
  if (2 * ++used_ > slots_.size()) grow();
  insert(id);
  return true;
}

void Vocabulary::insert(TokenId id) {
  const uint64_t hash = hash_piece(piece(id));
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  while (slots_[slot].id >= 0) slot = (slot + 1) & mask;
  slots_[slot] = {id, static_cast<uint32_t>(hash >> 32)};
}

void Vocabulary::grow() {
  std::vector<Slot> old(slots_.empty() ? 64 : 2 * slots_.size());
  old.swap(slots_);
  tables_.slots = slots_;
  for (const Slot& s : old)
    if (s.id >= 0) insert(s.id);
}

}  // namespace linnet
