#include "data/examples/text/masked_chunks.h"
#include <algorithm>
#include <cmath>
#include "base/fail.h"
#include "base/hash.h"

namespace linnet {
namespace {
constexpr double kShare = 0.15, kMasked = 0.8, kReplaced = 0.9;  // kReplaced: those that become another token included
constexpr int64_t kBatchesBetweenDrops = 256;                    // batches between which pages of a mapped file stay
constexpr int64_t kScoring = -2;
constexpr uint64_t kMaskedOffsets = 0x6d61736b6f666673u, kMaskedOrders = 0x6d61736b6f726472u,
                   kMasks = 0x6d61736b6d61736bu;

double uniform(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

int64_t places_of(int64_t tokens) { return std::max<int64_t>(1, std::llround(kShare * static_cast<double>(tokens))); }

int64_t template_size(const MaskingOptions& options) { return (options.begin >= 0) + (options.end >= 0); }
}  // namespace

int64_t masked_places(const MaskingOptions& options, int64_t length) {
  return places_of(length - template_size(options));
}

std::vector<BatchInput> masked_inputs(const MaskingOptions& options) {
  const int64_t longest = options.lengths.back(), slots = options.rows * masked_places(options, longest);
  return {number_input("tokens", options.rows * longest), number_input("lengths", options.rows),
      number_input("positions", slots), number_input("targets", slots)};
}

MaskedChunks::MaskedChunks(
    const TokenStream& stream, std::vector<TokenSpan> documents, MaskingOptions options, uint64_t seed)
    : SingleBatchSource(masked_inputs(options), seed), stream_(stream), documents_(std::move(documents)),
      options_(std::move(options)), content_(options_.lengths.back() - template_size(options_)) {
  if (options_.lengths.front() <= template_size(options_))
    fail_user("rows of ", options_.lengths.front(), " tokens have no room for text");
  const auto holds_text = [](const TokenSpan& document) { return document.count > 0; };
  if (std::ranges::none_of(documents_, holds_text)) fail_user("the text has no tokens");
}

// The first piece of a long document has `offset` tokens, so that epochs cut it differently.
void MaskedChunks::cut(int64_t offset) {
  pieces_.clear();
  for (const TokenSpan& document : documents_) {
    int64_t at = 0, next = document.count > content_ && offset > 0 ? offset : content_;
    for (; at < document.count; at = next, next += content_)
      pieces_.push_back({document.first + at, std::min(next, document.count) - at});
  }
}

int64_t MaskedChunks::batches() const { return (std::ssize(pieces_) + options_.rows - 1) / options_.rows; }

int64_t MaskedChunks::prepare(int64_t epoch) {
  if (epoch < 0) return 0;
  if (prepared_ == epoch) return batches();
  cut(static_cast<int64_t>(epoch_key(seed_, kMaskedOffsets, epoch) % static_cast<uint64_t>(content_)));
  std::vector<TokenSpan> shuffled;
  starts_ = order_by_length(
      std::ssize(pieces_), options_.rows, epoch_key(seed_, kMaskedOrders, epoch), shuffled,
      [&](int64_t i) { return pieces_[i]; },
      [&](const TokenSpan& piece) { return options_.lengths.size() > 1 ? piece.count : 0; });
  pieces_ = std::move(shuffled);
  prepared_ = epoch;
  return batches();
}

void MaskedChunks::make(int64_t epoch, int64_t index) {
  if (++made_ % kBatchesBetweenDrops == 0) stream_.drop_pages();
  fill(starts_[index], epoch_key(seed_, kMasks, epoch));
}

int64_t MaskedChunks::scoring_batches() {
  if (prepared_ != kScoring) {
    cut(0);
    std::ranges::stable_sort(pieces_, {}, &TokenSpan::count);
    prepared_ = kScoring;
  }
  return batches();
}

const Batch& MaskedChunks::scoring_batch(int64_t index) {
  if (index < 0 || index >= scoring_batches()) fail_internal("there is no such batch to score");
  fill(index * options_.rows, epoch_key(0, kMasks, kScoring));
  return owned_.batch;
}

void MaskedChunks::fill(int64_t first, uint64_t key) {
  const int64_t count = std::min(options_.rows, std::ssize(pieces_) - first);
  int64_t longest = 0;
  for (int64_t i = 0; i < count; ++i) longest = std::max(longest, pieces_[first + i].count);
  const auto found = std::ranges::lower_bound(options_.lengths, longest + template_size(options_));
  const int64_t length = *found;
  std::fill_n(owned_.data(0), options_.rows * length, 0);
  for (int64_t row = 0; row < options_.rows; ++row)
    fill_row(row < count ? pieces_[first + row] : TokenSpan{0, 0}, row, length, key);
  owned_.resize(0, options_.rows * length);
  for (const size_t array : {2, 3}) owned_.resize(array, options_.rows * masked_places(options_, length));
  owned_.batch.shape_index = static_cast<int>(found - options_.lengths.begin());
}

bool MaskedChunks::can_be_masked(int32_t token) const {
  return token != options_.begin && token != options_.end && token != options_.mask &&
         std::ranges::find(options_.special, token) == options_.special.end();
}

void MaskedChunks::fill_row(const TokenSpan& piece, int64_t row, int64_t length, uint64_t key) {
  const int64_t room = masked_places(options_, length);
  int32_t *tokens = owned_.data(0) + row * length, *positions = owned_.data(2) + row * room,
          *targets = owned_.data(3) + row * room;
  int32_t& row_length = owned_.data(1)[row];
  std::fill_n(positions, room, static_cast<int32_t>(row * length));
  std::fill_n(targets, room, -1);
  row_length = 1;  // a row that is not used: attention needs something to see
  if (piece.count == 0) return;
  const int64_t begin = options_.begin >= 0;
  if (options_.begin >= 0) tokens[0] = options_.begin;
  stream_.read(piece.first, piece.count, tokens + begin);
  if (options_.end >= 0) tokens[begin + piece.count] = options_.end;
  row_length = static_cast<int32_t>(piece.count + template_size(options_));

  draws_.clear();
  for (int64_t i = 0; i < piece.count; ++i)
    if (can_be_masked(tokens[begin + i]))
      draws_.emplace_back(mix64(key ^ mix64(static_cast<uint64_t>(piece.first + i) + 0x9e3779b97f4a7c15u)), begin + i);
  const auto chosen = std::min(places_of(piece.count), std::ssize(draws_));
  std::ranges::nth_element(draws_, draws_.begin() + chosen);
  std::sort(draws_.begin(), draws_.begin() + chosen, [](const auto& a, const auto& b) { return a.second < b.second; });
  for (int64_t i = 0; i < chosen; ++i) {
    const auto [bits, at] = draws_[i];
    positions[i] = static_cast<int32_t>(row * length + at);
    targets[i] = tokens[at];
    const double fate = uniform(mix64(bits + 1));
    if (fate < kMasked) tokens[at] = options_.mask;
    else if (fate < kReplaced)
      tokens[at] = static_cast<int32_t>(mix64(bits + 2) % static_cast<uint64_t>(options_.vocab_size));
  }
}

std::vector<TokenSpan> find_documents(const TokenStream& stream, int32_t separator) {
  if (separator < 0) return {{0, stream.size()}};
  constexpr int64_t kChunk = 1 << 16;
  std::vector<int32_t> chunk(kChunk);
  std::vector<TokenSpan> documents;
  int64_t first = 0;
  const auto end_at = [&](int64_t at) {
    if (at > first) documents.push_back({first, at - first});
    first = at + 1;
  };
  for (int64_t begin = 0; begin < stream.size(); begin += kChunk) {
    const int64_t count = std::min(kChunk, stream.size() - begin);
    stream.read(begin, count, chunk.data());
    for (int64_t i = 0; i < count; ++i)
      if (chunk[i] == separator) end_at(begin + i);
  }
  end_at(stream.size());
  return documents;
}
}  // namespace linnet
