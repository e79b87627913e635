#include <algorithm>
#include <numeric>
#include <set>
#include <utility>
#include "generation/text_grammar.h"

namespace linnet {
namespace {
constexpr uint64_t kWhole = UINT64_MAX;  // a location: the text is complete
// Nodes visited for a state, for the states of a token, and for those that are kept. Beyond the first two fewer texts
// are allowed, so that no grammar takes long, or much memory.
constexpr size_t kMostOfState = 1 << 16, kMostOfToken = 1 << 18, kMostKept = 1 << 20;
constexpr size_t kMostStates = 1 << 16, kMostMasks = 64;  // kept at once
}  // namespace

TokenTexts::TokenTexts(std::vector<std::string> texts) : texts_(std::move(texts)), tokens_(texts_.size()) {
  std::iota(tokens_.begin(), tokens_.end(), 0);
  std::erase_if(tokens_, [&](int32_t token) { return (*this)[token].empty(); });
  std::ranges::stable_sort(tokens_, {}, [&](int32_t token) -> const std::string& { return (*this)[token]; });
  std::vector<int32_t> path;  // nodes of the last text
  const auto close = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back()) nodes_[path.back()].end = static_cast<int32_t>(nodes_.size());
  };
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& text = (*this)[tokens_[i]];
    size_t same = 0;
    while (same < path.size() && same < text.size() && nodes_[path[same]].byte == static_cast<uint8_t>(text[same]))
      ++same;
    close(same);
    for (size_t k = same; k < text.size(); ++k) {
      path.push_back(static_cast<int32_t>(nodes_.size()));
      nodes_.push_back({static_cast<uint8_t>(text[k]), 0, static_cast<int32_t>(i), static_cast<int32_t>(i)});
    }
    nodes_[path.back()].last = static_cast<int32_t>(i + 1);
  }
  close(0);
}

TokenFilter::TokenFilter(
    std::shared_ptr<const TextGrammar> grammar, std::shared_ptr<const TokenTexts> texts, std::vector<int32_t> ends)
    : grammar_(std::move(grammar)), texts_(std::move(texts)), ends_(std::move(ends)), calls_(1) {
  state_ = state_of({location(grammar_->begin(), 0)});
}

int32_t TokenFilter::called_from(int32_t node, int32_t calls) {
  const auto [found, is_new] = call_of_.try_emplace({node, calls}, static_cast<int32_t>(calls_.size()));
  if (is_new) calls_.emplace_back(node, calls);
  return found->second;
}

// The state of everything reachable from these locations without a byte.
int32_t TokenFilter::state_of(std::vector<uint64_t> reached) {
  std::set<uint64_t> seen(reached.begin(), reached.end());
  std::vector<uint64_t> locations;
  while (!reached.empty() && seen.size() < kMostOfState) {
    const uint64_t at = reached.back();
    reached.pop_back();
    const auto visit = [&](int32_t node, int32_t calls) {
      if (seen.insert(location(node, calls)).second) reached.push_back(location(node, calls));
    };
    const auto calls = static_cast<int32_t>(at >> 32);
    const TextGrammar::Step& step = (*grammar_)[static_cast<int32_t>(at & UINT32_MAX)];
    switch (step.kind) {
      case TextGrammar::Kind::kRange: locations.push_back(at); break;
      case TextGrammar::Kind::kEither: visit(step.next, calls), visit(step.other, calls); break;
      case TextGrammar::Kind::kCall: visit(step.other, called_from(step.next, calls)); break;
      case TextGrammar::Kind::kReturn:
        if (calls == 0) locations.push_back(kWhole);
        else visit(calls_[calls].first, calls_[calls].second);
    }
  }
  visited_ += seen.size(), of_token_ += seen.size();
  std::ranges::sort(locations);
  locations.erase(std::unique(locations.begin(), locations.end()),
      locations.end());  // a text may be complete in several ways
  const auto [found, is_new] = state_of_.try_emplace(locations, static_cast<int32_t>(states_.size()));
  if (!is_new) return found->second;
  State state{.locations = std::move(locations), .branches = {}, .whole = false};
  if (!state.locations.empty() && state.locations.back() == kWhole) state.whole = true, state.locations.pop_back();
  // Bytes that lead to the same locations form one branch; bounds are starts and ends of ranges.
  std::set<int> bounds;
  for (const uint64_t at : state.locations) {
    const TextGrammar::Step& step = (*grammar_)[static_cast<int32_t>(at & UINT32_MAX)];
    bounds.insert(step.low), bounds.insert(step.high + 1);
  }
  for (auto bound = bounds.begin(); bound != bounds.end() && std::next(bound) != bounds.end(); ++bound)
    state.branches.push_back({static_cast<uint8_t>(*bound), static_cast<uint8_t>(*std::next(bound) - 1), kUnknown});
  states_.push_back(std::move(state));
  return found->second;
}

int32_t TokenFilter::advance(int32_t state, uint8_t byte) {
  const auto index = static_cast<size_t>(state);
  const auto branch = std::ranges::lower_bound(states_[index].branches, byte, {}, &Branch::high);
  if (branch == states_[index].branches.end() || branch->low > byte) return kDead;
  if (branch->target != kUnknown) return branch->target;
  if (of_token_ > kMostOfToken) return kDead;
  std::vector<uint64_t> reached;
  for (const uint64_t at : states_[index].locations) {
    const TextGrammar::Step& step = (*grammar_)[static_cast<int32_t>(at & UINT32_MAX)];
    if (step.low <= byte && byte <= step.high) reached.push_back(location(step.next, static_cast<int32_t>(at >> 32)));
  }
  const auto position = branch - states_[index].branches.begin();
  const int32_t target = reached.empty() ? kDead : state_of(std::move(reached));  // may move states_
  return states_[index].branches[position].target = target;
}

TokenMask TokenFilter::find_allowed() {
  TokenMask mask(texts_->size());
  const std::vector<TokenTexts::Node>& nodes = texts_->nodes();
  std::vector<std::pair<int32_t, int32_t>> path{{static_cast<int32_t>(nodes.size()), state_}};  // (end, state)
  for (int32_t i = 0; i < std::ssize(nodes);) {
    while (i >= path.back().first) path.pop_back();
    const TokenTexts::Node& node = nodes[i];
    const int32_t reached = advance(path.back().second, node.byte);
    if (reached == kDead) {
      i = node.end;
      continue;
    }
    for (int32_t k = node.first; k < node.last; ++k) mask[texts_->tokens()[static_cast<size_t>(k)]] = true;
    path.emplace_back(node.end, reached);
    ++i;
  }
  for (const int32_t end : ends_)
    if (static_cast<size_t>(end) < mask.size()) mask[end] = states_[state_].whole;
  return mask;
}

const TokenMask* TokenFilter::allowed() {
  if (state_ == kDead) return nullptr;
  begin_token();
  if (masks_.size() >= kMostMasks) masks_.clear();
  auto found = masks_.find(state_);
  if (found == masks_.end()) found = masks_.emplace(state_, find_allowed()).first;
  return contains(found->second, true) ? &found->second : nullptr;
}

void TokenFilter::accept(int32_t token) {
  begin_token();
  for (const char byte : (*texts_)[token])
    if (state_ != kDead) state_ = advance(state_, static_cast<uint8_t>(byte));
}

bool TokenFilter::finished() const {
  return state_ != kDead && states_[state_].whole && states_[state_].locations.empty();
}

// Drops all states but the current one, and calls that it does not return from, if many are kept.
void TokenFilter::begin_token() {
  of_token_ = 0;
  if (state_ == kDead || (states_.size() <= kMostStates && visited_ <= kMostKept)) return;
  State present = std::move(states_[state_]);
  for (Branch& branch : present.branches) branch.target = kUnknown;
  std::set<int32_t> used;  // a call follows the ones before it
  for (const uint64_t at : present.locations)
    for (auto call = static_cast<int32_t>(at >> 32); call > 0 && used.insert(call).second;) call = calls_[call].second;
  const std::vector<std::pair<int32_t, int32_t>> calls = std::exchange(calls_, {{0, 0}});
  call_of_.clear();
  std::map<int32_t, int32_t> moved{{0, 0}};
  for (const int32_t call : used) moved[call] = called_from(calls[call].first, moved[calls[call].second]);
  for (uint64_t& at : present.locations)
    at = location(static_cast<int32_t>(at & UINT32_MAX), moved[static_cast<int32_t>(at >> 32)]);
  std::vector<uint64_t> key = present.locations;
  if (present.whole) key.push_back(kWhole);
  states_.clear(), state_of_.clear(), masks_.clear(), visited_ = 0;
  states_.push_back(std::move(present));
  state_of_.emplace(std::move(key), state_ = 0);
}
}  // namespace linnet
