#include "text/vocabulary.h"

namespace linnet {

bool Vocabulary::add(std::string_view piece, TokenId id) {
  if (id < 0 || id > kMaxId || has(id) || text_.size() + piece.size() >= kGap) return false;
  if (id >= size()) locations_.resize(static_cast<size_t>(id) + 1);
  locations_[static_cast<size_t>(id)] = {static_cast<uint32_t>(text_.size()), static_cast<uint32_t>(piece.size())};
  const bool known = find(piece) >= 0;
  text_ += piece;
  if (piece.size() > longest_) longest_ = piece.size();
  if (known) return true;
  if (2 * ++used_ > slots_.size()) grow();
  insert(id);
  return true;
}

void Vocabulary::insert(TokenId id) {
  const uint64_t hash = hash_piece(piece(id));
  size_t slot = hash & mask_;
  while (slots_[slot].id >= 0) slot = (slot + 1) & mask_;
  slots_[slot] = {id, static_cast<uint32_t>(hash >> 32)};
}

void Vocabulary::grow() {
  std::vector<Slot> old(slots_.empty() ? 64 : 2 * slots_.size());
  old.swap(slots_);
  mask_ = slots_.size() - 1;
  for (const Slot& s : old)
    if (s.id >= 0) insert(s.id);
}

}  // namespace linnet
