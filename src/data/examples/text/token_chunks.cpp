#include "data/examples/text/token_chunks.h"
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include "base/fail.h"
#include "base/files.h"
#include "base/log.h"
#include "base/numbers.h"
#include "data/examples/text/record_reader.h"

namespace linnet {
namespace {
static_assert(std::endian::native == std::endian::little, "token files are read as they lie");
constexpr int64_t kSmall = 1 << 16;

// The document in a JSON value: the string `key` of an object. `where`: for messages.
std::string document_of(Json& value, const std::string& key, const std::string& where) {
  Json* found = value.find(key);
  if (!found || !found->is_string())
    fail_user(where, ": no string \"", key, "\"; --text-column names the field to read",
        value.contains("messages") ? "; chats need a run with task = \"chat\", also to evaluate" : "");
  return std::move(found->text());
}

// Text files in a folder and below it, by name.
std::vector<std::string> find_texts(const std::string& folder) {
  std::vector<std::string> texts;
  int64_t others = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file() || entry.path().filename().string().starts_with('.')) continue;
    const std::string path = entry.path().string();
    const bool text = has_ending(path, ".txt") || has_ending(path, ".md") || has_records(path);
    text ? texts.push_back(path) : void(++others);
  }
  if (texts.empty()) fail_user("'", folder, "' is a folder without texts (.txt, .md, .jsonl, .json, .csv, .tsv)");
  if (others > 0)
    log_warning("'" + folder + "': " + std::to_string(others) + (others == 1 ? " file is" : " files are") +
                " left out: a text ends in .txt, .md, .jsonl, .json, .csv or .tsv");
  std::ranges::sort(texts);
  return texts;
}

constexpr uint64_t kOffsets = 0x6f66667365747300u, kOrders = 0x6f72646572730000u;  // two streams of one seed

enum : size_t { kTokenIds, kTargets, kPositions, kStarts };  // arrays

constexpr int64_t kDropEvery = 256;  // batches between which pages of a mapped file stay

// Sets where the document of token t begins in its row, which is at `row`.
void set_start(OwnedBatch& batch, int64_t row, int64_t t, int64_t start) {
  batch.data(kStarts)[row + t] = static_cast<int32_t>(start);
  batch.data(kPositions)[row + t] = static_cast<int32_t>(t - start);
}

// Fills row `row`: `count` <= length inputs from `first` on, each with the next token as target.
void fill_row(const TokenStream& stream, const ChunkOptions& options, int64_t row, int64_t first, int64_t count,
    OwnedBatch& batch) {
  const int64_t at = row * options.length;
  int32_t *tokens = batch.data(kTokenIds) + at, *targets = batch.data(kTargets) + at;
  if (count > 0) {
    int32_t next = 0;
    stream.read(first, count, tokens);
    stream.read(first + count, 1, &next);
    std::copy_n(tokens + 1, count - 1, targets);
    targets[count - 1] = next;
  }
  std::fill(tokens + count, tokens + options.length, 0);
  std::fill(targets + count, targets + options.length, -1);
  if (batch.batch.arrays.size() <= kStarts) return;
  if (!options.separator_ends) std::replace(targets, targets + count, options.separator, -1);
  for (int64_t t = 0, start = 0; t < options.length; ++t) {
    if (t < count && tokens[t] == options.separator) start = t;
    set_start(batch, at, t, start);
  }
}

// `use` distinguishes sequences of one seed.
uint64_t epoch_key(uint64_t seed, uint64_t use, int64_t epoch) {
  return mix64(mix64(seed + 0x9e3779b97f4a7c15u) ^ use ^ mix64(static_cast<uint64_t>(epoch)));
}

constexpr double kShare = 0.15, kMasked = 0.8, kReplaced = 0.9;  // kReplaced: those that become another token included
constexpr int64_t kScoring = -2;
constexpr uint64_t kMaskedOffsets = 0x6d61736b6f666673u, kMaskedOrders = 0x6d61736b6f726472u,
                   kMasks = 0x6d61736b6d61736bu;

double uniform(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

int64_t places_of(int64_t tokens) { return std::max<int64_t>(1, std::llround(kShare * static_cast<double>(tokens))); }

int64_t template_size(const MaskingOptions& options) { return (options.begin >= 0) + (options.end >= 0); }
}  // namespace

struct TokenStream::Storage {
  std::string name;  // of the file, or empty
  MappedFile file;
  std::vector<std::byte> tokens;
};

TokenStream::TokenStream(const std::vector<int32_t>& tokens, int64_t vocab_size)
    : bytes_each_(vocab_size <= kSmall ? 2 : 4), size_(std::ssize(tokens)), vocab_size_(vocab_size) {
  auto storage = std::make_shared<Storage>();
  storage->tokens.resize(tokens.size() * bytes_each_);
  data_ = storage->tokens.data();
  for (size_t i = 0; i < tokens.size(); ++i)
    std::memcpy(storage->tokens.data() + i * bytes_each_, &tokens[i], bytes_each_);
  storage_ = std::move(storage);
}

TokenStream::TokenStream(const std::string& path, int bytes_each, int64_t vocab_size)
    : bytes_each_(bytes_each), vocab_size_(vocab_size) {
  auto storage = std::make_shared<Storage>();
  storage->name = path, storage->file = MappedFile(path);
  const auto bytes = std::ssize(storage->file);
  if (bytes % bytes_each != 0)
    fail_user("'", path, "' has ", bytes, " bytes, which is no whole number of tokens of ", bytes_each, " bytes");
  size_ = bytes / bytes_each;
  data_ = storage->file.data();
  storage_ = std::move(storage);
}

TokenStream TokenStream::part(int64_t first, int64_t count) const {
  TokenStream part = *this;
  part.data_ = static_cast<const std::byte*>(data_) + first * bytes_each_;
  part.size_ = count, part.first_ = first_ + first;
  return part;
}

void TokenStream::drop_pages() const { storage_->file.drop_pages(); }

void TokenStream::read(int64_t first, int64_t count, int32_t* out) const {
  if (first < 0 || count < 0 || first + count > size_) fail_internal("tokens beyond the end of a stream");
  const auto copy = [&]<class T>(const T* data) {
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<int32_t>(data[first + i]);
  };
  if (bytes_each_ == 2) copy(static_cast<const uint16_t*>(data_));
  else copy(static_cast<const uint32_t*>(data_));
  if (storage_->file.data()) check_lost_pages(storage_->file.data());
  for (int64_t i = 0; i < count; ++i)
    if (out[i] < 0 || out[i] >= vocab_size_)
      fail_user(storage_->name.empty() ? "the text" : "'" + storage_->name + "'", ": token ", first_ + first + i,
          " is ", static_cast<uint32_t>(out[i]), ", and the vocabulary has ", vocab_size_, " tokens");
}

bool has_documents(const std::string& path) {
  const bool is_table = has_ending(path, ".tsv");  // a text as any other
  return (has_records(path) && !is_table) || std::filesystem::is_directory(path);
}

void read_documents(const std::string& path, const std::string& key, FunctionRef<void(std::string)> document) {
  if (std::filesystem::is_directory(path)) {
    for (const std::string& file : find_texts(path)) read_documents(file, key, document);
    return;
  }
  if (!has_documents(path)) return document(read_text(path));
  RecordReader reader(path, {});
  for (Json record; reader.next(record);) document(document_of(record, key, reader.where()));
}

ShuffledIndex::ShuffledIndex(int64_t count, uint64_t key) : count_(static_cast<uint64_t>(count)), key_(key) {
  half_bits_ = std::max(1, (static_cast<int>(std::bit_width(count_ > 0 ? count_ - 1 : 0)) + 1) / 2);
}

int64_t ShuffledIndex::operator()(int64_t i) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  auto value = static_cast<uint64_t>(i);
  do {
    uint64_t left = value >> half_bits_, right = value & mask;
    for (uint64_t round = 0; round < 4; ++round) {
      const uint64_t mixed = left ^ (mix64(key_ + right + (round << 56)) & mask);
      left = right, right = mixed;
    }
    value = left << half_bits_ | right;
  } while (value >= count_);
  return static_cast<int64_t>(value);
}

std::vector<BatchInput> token_inputs(const ChunkOptions& options, bool packed) {
  const int64_t count = options.rows * options.length;
  std::vector<BatchInput> inputs{number_input("tokens", count), number_input("targets", count)};
  if (packed) inputs.insert(inputs.end(), {number_input("positions", count), number_input("starts", count)});
  return inputs;
}

TrainingChunks::TrainingChunks(const TokenStream& stream, const ChunkOptions& options, uint64_t seed, bool packed)
    : SingleBatchSource(token_inputs(options, packed), seed), stream_(stream), options_(options) {
  const int64_t usable = stream.size() - 1;  // inputs that have a target
  if (usable < options.length)
    fail_user("the training text has ", stream.size(), " tokens, and one chunk takes ", options.length + 1,
        ": it takes more text, or a smaller --set context=N");
  max_offset_ = std::min(options.length - 1, usable - options.length);
  chunks_ = (usable - max_offset_) / options.length;
  batches_ = std::max<int64_t>(1, chunks_ / options.rows);  // a rest of rows waits for the next epoch's cut
}

void TrainingChunks::make(int64_t epoch, int64_t index) {
  if (++made_ % kDropEvery == 0) stream_.drop_pages();
  const auto offset = static_cast<int64_t>(epoch_key(seed_, kOffsets, epoch) % static_cast<uint64_t>(max_offset_ + 1));
  const ShuffledIndex order(chunks_, epoch_key(seed_, kOrders, epoch));
  for (int64_t row = 0; row < options_.rows; ++row) {
    const int64_t chunk = index * options_.rows + row;
    const bool exists = chunk < chunks_;
    fill_row(stream_, options_, row, exists ? offset + order(chunk) * options_.length : 0, exists ? options_.length : 0,
        owned_);
  }
}

int64_t scoring_batches(const TokenStream& stream, const ChunkOptions& options) {
  const int64_t targets = std::max<int64_t>(0, stream.size() - 1), each = options.rows * options.length;
  return ceil_div(targets, each);
}

void fill_scoring_batch(const TokenStream& stream, const ChunkOptions& options, int64_t index, OwnedBatch& batch) {
  const int64_t targets = stream.size() - 1;
  for (int64_t row = 0; row < options.rows; ++row) {
    const int64_t first = (index * options.rows + row) * options.length;
    fill_row(
        stream, options, row, std::min(first, targets), std::clamp<int64_t>(targets - first, 0, options.length), batch);
  }
}

PackedRows::PackedRows(const std::vector<TargetedTokens>& data, const ChunkOptions& options, uint64_t seed)
    : SingleBatchSource(token_inputs(options, true), seed), data_(data), options_(options) {
  if (data.empty()) fail_user("there are no examples");
  std::vector<size_t> order = numbers_below<size_t>(data.size());
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](size_t i) { return data[i].tokens.size(); });
  std::multimap<size_t, size_t> rows_by_room;
  for (const size_t i : order) {
    const size_t size = data[i].tokens.size(), length = static_cast<size_t>(options.length);
    if (size > length) fail_internal("a sequence is longer than a row");
    const auto fits = rows_by_room.lower_bound(size);
    size_t row = rows_.size(), room = length;
    if (fits == rows_by_room.end()) rows_.emplace_back();
    else room = fits->first, row = fits->second, rows_by_room.erase(fits);
    rows_[row].push_back(i);
    rows_by_room.emplace(room - size, row);
  }
}

template <class Order> void PackedRows::fill(int64_t first, const Order& order) {
  const int64_t all = options_.rows * options_.length;
  std::fill_n(owned_.data(kTokenIds), all, 0);
  std::fill_n(owned_.data(kTargets), all, -1);
  for (int64_t row = 0; row < options_.rows; ++row) {
    int64_t at = 0;
    const int64_t offset = row * options_.length;
    if (first + row < row_count())
      for (const size_t i : rows_[order(first + row)]) {
        std::ranges::copy(data_[i].tokens, owned_.data(kTokenIds) + offset + at);
        std::ranges::copy(data_[i].targets, owned_.data(kTargets) + offset + at);
        const int64_t end = at + std::ssize(data_[i].tokens);
        for (int64_t t = at; t < end; ++t) set_start(owned_, offset, t, at);
        at = end;
      }
    for (int64_t t = at; t < options_.length; ++t) set_start(owned_, offset, t, at);  // padding, a sequence of its own
  }
}

void PackedRows::make(int64_t epoch, int64_t index) {
  fill(index * options_.rows, ShuffledIndex(row_count(), mix64(mix64(seed_ + 1) + static_cast<uint64_t>(epoch))));
}

const Batch& PackedRows::ordered_batch(int64_t index) {
  fill(index * options_.rows, [](int64_t row) { return row; });
  return owned_.batch;
}

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
  if (++made_ % kDropEvery == 0) stream_.drop_pages();
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
  const int64_t longest = max_of<int64_t>(count, [&](int64_t i) { return pieces_[first + i].count; });
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
         !contains(options_.special, token);
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
