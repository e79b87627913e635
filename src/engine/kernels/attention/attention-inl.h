// What the forward and the backward pass of attention share.
#include <algorithm>
#include <cstdint>
#include <type_traits>
#include "engine/kernels/attention/attention.h"
#include "engine/kernels/attention/attention_blocking.h"
#include "engine/kernels/attention/attention_tile-inl.h"
#include "engine/kernels/gemm/gemm_tile-inl.h"
#include "engine/kernels/lanes-inl.h"
#include "engine/kernels/random/philox-inl.h"
#include "engine/kernels/random/philox.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::attention {
// Scores are in units of log 2: exp2 is cheaper than exp, and packed keys absorb the factor.
constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;

// 2^x for x <= 127, to 2e-7 (degree 5) or 4e-6 (degree 4); 0 below the normal numbers; NaN for NaN. x = n + r with n =
// round(x), and a polynomial for 2^r on [-1/2, 1/2] (Chebyshev).
template <int kDegree> HWY_INLINE V Exp2(V x) {
  static_assert(kDegree == 4 || kDegree == 5);
  const auto polynomial = [](V r) LINNET_LAMBDA {
    V p = hn::Set(d, 9.66636837e-3f);
    if constexpr (kDegree == 5) p = hn::MulAdd(hn::Set(d, 1.33813021e-3f), r, p);
    p = hn::MulAdd(p, r, hn::Set(d, kDegree == 5 ? 5.55038117e-2f : 5.59219755e-2f));
    p = hn::MulAdd(p, r, hn::Set(d, 2.40223497e-1f));
    p = hn::MulAdd(p, r, hn::Set(d, kDegree == 5 ? 6.93147182e-1f : 6.93121016e-1f));
    return hn::MulAdd(p, r, hn::Set(d, 1.0f));
  };
#if HWY_TARGET == HWY_AVX3
  const __m512 n = _mm512_roundscale_ps(x.raw, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __mmask16 normal = _mm512_cmp_ps_mask(x.raw, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
  return V{_mm512_maskz_scalef_ps(normal, polynomial(hn::Sub(x, V{n})).raw, n)};
#else
  const hn::RebindToUnsigned<D> bits;  // adding 1.5 * 2^23 leaves n in the low bits; 127 there is the exponent's bias
  const V shift = hn::Set(d, 12582912.0f + 127.0f);
  const V t = hn::Add(x, shift);
  const V power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(bits, t)));
  const V p = polynomial(hn::Sub(x, hn::Sub(t, shift)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -126.0f)), hn::Mul(p, power));
#endif
}

// A block of queries against a block of keys, and which of them each query sees.
struct Window {
  int64_t first_query, queries;
  int64_t first_key, keys;  // all of them are valid
  bool causal;
  int64_t offset;  // key_length - query_length
  // With starts or a bias (LimitWindow): query i sees none before starts[i], none sees any before `begin`; from
  // `latest` on starts hide nothing; bias[i - j] is added to scores.
  const float* starts = nullptr;
  int64_t begin = 0, latest = 0;
  const float* bias = nullptr;

  int64_t limit(int64_t i) const {
    return causal ? std::clamp<int64_t>(first_query + i + offset + 1 - first_key, 0, keys) : keys;
  }
  int64_t start(int64_t i) const { return starts ? static_cast<int64_t>(starts[i]) : 0; }
  bool unseen() const { return limit(queries - 1) == 0 || begin >= keys; }
  // The first query that causally sees key j of the block, or `queries`.
  int64_t first_seer(int64_t j) const {
    return causal ? std::clamp<int64_t>(first_key + j - offset - first_query, 0, queries) : 0;
  }
};

// Fills in a window's starts and bias, in the memory of one thread.
HWY_INLINE void LimitWindow(
    const AttentionArgs& args, int64_t sample, int64_t head, float* starts, float* bias, Window& window) {
  if (!attention_blocking::hides_keys(args) && !args.biased) return;
  window.starts = starts, window.begin = window.keys;
  for (int64_t i = 0; i < round_up(window.queries, kWidth); ++i) {
    int64_t start = 0;
    if (i < window.queries) {
      start = first_key_seen(args, sample, window.first_query + i) - window.first_key;
      start = std::clamp<int64_t>(start, 0, window.keys);
      window.begin = std::min(window.begin, start), window.latest = std::max(window.latest, start);
    }
    starts[i] = static_cast<float>(start);
  }
  if (!args.biased) return;
  // Distances i - j from -(keys - 1) to queries - 1, and zeros around them.
  const int64_t entries = args.query_length + args.key_length - 1, count = window.keys + window.queries - 1;
  const float* last = args.distance_bias + sample * args.bias_stride + head * entries + window.first_key -
                      window.first_query + args.query_length - 1 + window.keys - 1;
  std::fill_n(bias, attention_blocking::kBiasLead, 0.0f);
  bias += attention_blocking::kBiasLead;
  for (int64_t u = 0; u < count; ++u) bias[u] = kLog2E * *(last - u);
  std::fill_n(bias + count, kWidth, 0.0f);
  window.bias = bias + window.keys - 1;
}

inline int64_t valid_keys(const AttentionArgs& args, int64_t sample) {
  if (!args.key_lengths) return args.key_length;
  return std::clamp<int64_t>(args.key_lengths[sample], 0, args.key_length);
}

// Calls body with a pointer of the rows' type in memory.
template <class Body> HWY_INLINE void WithType(StoredFloats rows, const Body& body) {
  rows.is_bf16 ? body(rows.bf16()) : body(rows.f32());
}

// Prefetches a row; kLocality as in __builtin_prefetch. Hardware does not, as a head's rows are short and far apart.
template <int kLocality> HWY_INLINE void FetchRow(StoredFloats row, int64_t width) {
  const auto* first = static_cast<const char*>(row.data);
  const int64_t size = width * static_cast<int64_t>(row.is_bf16 ? sizeof(Bfloat16) : sizeof(float));
  for (int64_t i = 0; i < size; i += 64) __builtin_prefetch(first + i, 0, kLocality);
}
HWY_INLINE void FetchRows(StoredFloats rows, int64_t stride, int64_t count, int64_t width) {  // to L2
  for (int64_t i = 0; i < count; ++i) FetchRow<2>(rows + i * stride, width);
}
constexpr int64_t kRowsAhead = 16;  // rows that are fetched before they are packed

// Rows of a left operand, scaled, in slices that are `slice` floats apart.
template <class P> HWY_INLINE void PackScaledRows(
    StoredFloats source, int64_t stride, int64_t rows, int64_t width, float factor, int64_t slice, float* out) {
  constexpr int64_t kSlice = attention_blocking::kSlice;
  for (int64_t i = 0; i < std::min(kRowsAhead, rows); ++i) FetchRow<3>(source + i * stride, width);
  WithType(source, [=](const auto* from) LINNET_LAMBDA {
    for (int64_t i = 0; i < rows; ++i) {
      if (i + kRowsAhead < rows) FetchRow<3>(StoredFloats(from + (i + kRowsAhead) * stride), width);
      for (int64_t k = 0; k < width; k += kSlice)
        P::PackScaled(
            from + i * stride + k, std::min(kSlice, width - k), factor, out + k / kSlice * slice + i * P::kKeyRow);
    }
  });
}

HWY_INLINE void WriteScaled(const float* x, float factor, int64_t count, bool add, MutableStoredFloats out) {
  ForRow(count, [&](const auto& at) LINNET_LAMBDA {
    const V y = hn::Mul(hn::Set(d, factor), at.load(x));
    at.store(add ? hn::Add(y, at.load(out)) : y, out);
  });
}

// Panels of the transpose [width, rows] of `rows` rows.
template <class P>
HWY_INLINE void PackTransposed(StoredFloats source, int64_t stride, int64_t rows, int64_t width, float* out) {
  const int64_t panel = ceil_div(width, P::kPair) * kWidth;
  WithType(source, [=](const auto* from) LINNET_LAMBDA {
    for (int64_t j = 0; j < rows; j += kWidth)
      tile::PackPanelTransposed<P>(
          from + j * stride, stride, width, std::min<int64_t>(kWidth, rows - j), out + j / kWidth * panel);
  });
}

// Panels of [rows, width].
template <class P>
HWY_INLINE void PackPanels(StoredFloats source, int64_t stride, int64_t rows, int64_t width, float* out) {
  const int64_t panel = ceil_div(rows, P::kPair) * kWidth;
  WithType(source, [=](const auto* from) LINNET_LAMBDA {
    for (int64_t k = 0; k < width; k += kWidth)
      tile::PackPanel<P>(from + k, stride, rows, std::min<int64_t>(kWidth, width - k), out + k / kWidth * panel);
  });
}

HWY_INLINE bool AllFinite(StoredFloats rows, int64_t stride, int64_t count, int64_t width) {
  V sum = hn::Zero(d);
  WithType(rows, [&](const auto* from) LINNET_LAMBDA {
    for (int64_t i = 0; i < count; ++i, from += stride)
      ForRow(width, [&](const auto& at)
                        LINNET_LAMBDA { sum = hn::MulAdd(at.load(from), hn::Zero(d), sum); });  // 0 if all are finite
  });
  return SumLanes(sum) == 0;
}

// The dropout of a block of probabilities, drawn ahead as one bit each. The numbers are those of random/philox.h.

// Bits of a vector of queries, and of a block's queries: bit i % kLanes from byte i / kLanes * kMaskBytes on.
constexpr int64_t kMaskBytes = kLanes > 8 ? kLanes / 8 : 1;
constexpr int64_t kMaskRow = kQueryBlock / kLanes * kMaskBytes;
static_assert(kMaskRow * 16 <= kQueryBlock * 4);  // what Layout has room for

class Dropout {
 public:
  Dropout(const AttentionArgs& args, int64_t sample, float* memory)
      : active(args.dropout > 0), scale(active ? dropout_scale(args.dropout) : 1.0f),
        threshold_(active ? dropout_threshold(args.dropout) << 16 : 0), sample_(static_cast<uint32_t>(sample)),
        first_head_(args.first_head), bits_(reinterpret_cast<uint8_t*>(memory)) {
    uint32_t key0 = low(args.dropout_key), key1 = high(args.dropout_key);
    for (uint64_t(&key)[2] : keys_) {
      key[0] = key0, key[1] = key1;
      key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
    }
  }

  // The bits of the window's keys, rows of kMaskRow bytes, set where a probability is kept; null without dropout.
  HWY_INLINE const uint8_t* draw(const Window& window, int64_t head) const {
    if (!active) return nullptr;
    for (int64_t i = 0; i < window.queries; i += kWidth) {
      const int64_t end = window.limit(std::min(i + kWidth, window.queries) - 1);
      const Query query(*this, window.first_query + i, first_head_ + head);
      for (int64_t j = 0; j < end; j += 8)
        draw_eight(
            query, static_cast<uint32_t>((window.first_key + j) / 8), bits_ + j * kMaskRow + i / kLanes * kMaskBytes);
    }
    return bits_;
  }

  const bool active;
  const float scale;

 private:
  static constexpr uint64_t kMul0 = 0xD2511F53u, kMul1 = 0xCD9E8D57u;
  // Vectors of counters side by side, to hide the latency of products: even and odd queries of two vectors.
  static constexpr int kCounters = 4;
  static constexpr uint32_t low(uint64_t x) { return static_cast<uint32_t>(x); }
  static constexpr uint32_t high(uint64_t x) { return static_cast<uint32_t>(x >> 32); }
  static HWY_INLINE PhiloxLanes times(PhiloxLanes x, uint64_t factor) {
    const hn::Repartition<uint32_t, PhiloxTag> d32;
    return hn::MulEven(hn::BitCast(d32, x), hn::Set(d32, low(factor)));
  }

  // Counters are {key / 8, query, head, sample}: key, head and sample are the same in all lanes, and the first two
  // rounds multiply what depends on the query or on the others, never on both. So two and a half of ten rounds are
  // scalar or shared by all keys.
  struct Query {
    HWY_INLINE Query(const Dropout& dropout, int64_t query, int64_t head) {
      const PhiloxTag d64;
      const uint64_t product = kMul1 * low(static_cast<uint64_t>(head));
      first_low = low(product);
      const PhiloxLanes mix = hn::Set(d64, high(product) ^ dropout.keys_[0][0]), lane = hn::Iota(d64, 0);
      for (int c = 0; c < kCounters; ++c) {
        const PhiloxLanes first = hn::Set(d64, static_cast<uint64_t>(query + c / 2 * kLanes + c % 2));
        const PhiloxLanes number = hn::Add(first, hn::Add(lane, lane));
        products[c] = times(hn::Xor(number, mix), kMul0);
      }
    }
    uint32_t first_low;
    PhiloxLanes products[kCounters];  // of x0 in the second round
  };

  HWY_INLINE void draw_eight(const Query& query, uint32_t block, uint8_t* bits) const {
    const PhiloxTag d64;
    const hn::Repartition<uint32_t, PhiloxTag> d32;
    const uint64_t first = kMul0 * block;
    const uint64_t second = kMul1 * (high(first) ^ sample_ ^ low(keys_[0][1]));
    const uint64_t third = kMul0 * (high(second) ^ query.first_low ^ low(keys_[1][0]));
    const PhiloxLanes mix3 = hn::Set(d64, low(first) ^ keys_[1][1]), mix0 = hn::Set(d64, low(second) ^ keys_[2][0]);
    const PhiloxLanes mix2 = hn::Set(d64, high(third) ^ keys_[2][1]), low3 = hn::Set(d64, low(third));
    PhiloxCounters x[kCounters];
#pragma GCC unroll 4
    for (int c = 0; c < kCounters; ++c) {
      const PhiloxLanes p1 = times(hn::Xor(hn::ShiftRight<32>(query.products[c]), mix3), kMul1);
      x[c] = {hn::Xor(hn::ShiftRight<32>(p1), mix0), p1, hn::Xor(query.products[c], mix2), low3};
    }
#pragma GCC unroll 7
    for (int round = 3; round < 10; ++round) {
      const PhiloxLanes k0 = hn::Set(d64, keys_[round][0]), k1 = hn::Set(d64, keys_[round][1]);
#pragma GCC unroll 4
      for (int c = 0; c < kCounters; ++c) x[c].round(k0, k1);
    }
    const auto threshold = hn::Set(d32, threshold_);
    const auto store = [&](PhiloxLanes of_even, PhiloxLanes of_odd, int64_t t) LINNET_LAMBDA {
      const auto word = hn::OddEven(hn::BitCast(d32, hn::ShiftLeft<32>(of_odd)), hn::BitCast(d32, of_even));
      hn::StoreMaskBits(d32, hn::Not(hn::Lt(hn::ShiftLeft<16>(word), threshold)), bits + t * kMaskRow);
      hn::StoreMaskBits(d32, hn::Not(hn::Lt(word, threshold)), bits + (t + 1) * kMaskRow);
    };
#pragma GCC unroll 2
    for (int c = 0; c < kCounters; c += 2, bits += kMaskBytes) {
      store(x[c].x0, x[c + 1].x0, 0);
      store(x[c].x1, x[c + 1].x1, 2);
      store(x[c].x2, x[c + 1].x2, 4);
      store(x[c].x3, x[c + 1].x3, 6);
    }
  }

  const uint32_t threshold_, sample_;
  const int64_t first_head_;
  uint8_t* const bits_;
  uint64_t keys_[10][2];  // of the rounds
};

// Properties of a tile of weights: `rows` keys, an even number, from `key`, one panel of queries.
enum class Masking { kNone, kDropout, kAny, kLimited };  // kLimited: with starts or a bias too
constexpr bool hides(Masking masking) { return masking == Masking::kAny || masking == Masking::kLimited; }

struct Location {
  const Window& window;
  const uint8_t* kept;  // bits of dropout, or null
  int64_t key = 0, rows = 0, query = 0;
  int64_t columns = 0;  // queries that count: two vectors of them, or one

  int64_t in_panel() const { return query % kWidth; }
};

HWY_INLINE auto Kept(const Location& location, int64_t row, int h) {  // whether lanes of vector h are kept
  return hn::LoadMaskBits(
      d, location.kept + (location.key + row) * kMaskRow + (location.query / kLanes + h) * kMaskBytes);
}

// Which lanes of a tile of keys count: queries that see the key, both in the window. Two rows at a time.
template <int kVectors> class Seen {
 public:
  HWY_INLINE explicit Seen(const Location& location)
      : rows_(location.rows), padded_(location.key + location.rows > location.window.keys),
        step_(hn::Set(d, location.window.causal ? 1.0f : 0.0f)) {
    const Window& window = location.window;  // query i sees key j when i + first_query + offset >= j + first_key
    const int64_t ahead = window.first_query + window.offset - window.first_key - location.key;
    const V number = hn::Iota(d, 0), count = hn::Set(d, static_cast<float>(location.columns));
    const V first = hn::Set(d, window.causal ? static_cast<float>(location.query + ahead) : 0.0f);
#pragma GCC unroll 2
    for (int h = 0; h < kVectors; ++h) {
      const V i = hn::Add(number, hn::Set(d, static_cast<float>(h * kLanes)));
      const V last = window.causal ? hn::Add(i, first) : hn::Zero(d);  // the last row that it sees
      last_[h] = hn::IfThenElse(hn::Lt(i, count), last, hn::Set(d, -1.0f));
    }
  }

  // For rows i and i + 1, i = 0, 2, ... in turn.
  HWY_INLINE void start_pair(int64_t i) {
    row_[0] = i == 0 ? hn::Zero(d) : hn::Add(row_[1], step_);
    row_[1] = hn::Add(row_[0], step_);
    if (i == rows_ - 2 && padded_) row_[1] = hn::Set(d, 1e30f);
  }
  HWY_INLINE V zero_unseen(int row, int h, V x) const { return hn::IfThenElseZero(hn::Ge(last_[h], row_[row]), x); }
  HWY_INLINE V select(int row, int h, V x, V unseen) const {
    return hn::IfThenElse(hn::Ge(last_[h], row_[row]), x, unseen);
  }

 private:
  int64_t rows_;
  bool padded_;
  V step_, last_[kVectors], row_[2];
};

template <int kVectors>  // with starts
class SeenFromStart {
 public:
  HWY_INLINE explicit SeenFromStart(const Location& location) {
    const Window& window = location.window;
    const int64_t ahead = window.first_query + window.offset - window.first_key - location.key;
    const V number = hn::Iota(d, 0), count = hn::Set(d, static_cast<float>(location.columns));
    const V end = hn::Set(d, static_cast<float>(window.keys - 1 - location.key));
    const V first = hn::Set(d, static_cast<float>(location.query + ahead)),
            key = hn::Set(d, static_cast<float>(location.key));
#pragma GCC unroll 2
    for (int h = 0; h < kVectors; ++h) {
      const V i = hn::Add(number, hn::Set(d, static_cast<float>(h * kLanes)));
      const V last = window.causal ? hn::Min(hn::Add(i, first), end) : end;
      first_[h] = hn::Sub(hn::LoadU(d, window.starts + location.query + h * kLanes), key);
      last_[h] = hn::IfThenElse(hn::Lt(i, count), last, hn::Set(d, -1.0f));
    }
  }
  HWY_INLINE void start_pair(int64_t i) {
    row_[0] = hn::Set(d, static_cast<float>(i)), row_[1] = hn::Set(d, static_cast<float>(i + 1));
  }
  HWY_INLINE V zero_unseen(int row, int h, V x) const { return hn::IfThenElseZero(seen(row, h), x); }
  HWY_INLINE V select(int row, int h, V x, V unseen) const { return hn::IfThenElse(seen(row, h), x, unseen); }

 private:
  HWY_INLINE auto seen(int row, int h) const {
    return hn::And(hn::Ge(last_[h], row_[row]), hn::Le(first_[h], row_[row]));
  }
  V first_[kVectors], last_[kVectors], row_[2];
};

// The mask of a tile's lanes, or a Location if all lanes count.
template <Masking kMasking, int kVectors> using SeenIn = std::conditional_t<kMasking == Masking::kLimited,
    SeenFromStart<kVectors>, std::conditional_t<kMasking == Masking::kAny, Seen<kVectors>, Location>>;

// A tile of scores: `row` and the bias, plus the packed keys times the queries.
template <class P, Masking kMasking> HWY_INLINE void Scores(const Location& location, int64_t depth, const float* keys,
    int64_t skip, const float* queries, const float* row, float* out, int64_t stride) {
  Sums sums{out, stride, false, row};
  if (kMasking == Masking::kLimited && location.window.bias) {
    const float* bias = location.window.bias + location.query - location.key;
    const int64_t width = location.columns > kLanes ? kWidth : kLanes;
    for (int64_t i = 0; i < location.rows; ++i)
      for (int64_t h = 0; h < width; h += kLanes)
        hn::Store(hn::Add(hn::Load(d, row + h), hn::LoadU(d, bias - i + h)), d, out + i * stride + h);
    sums = {out, stride, true};
  }
  TileFor<P, P::kKeyRow, 1>(location.rows / 2, location.columns)(
      depth, keys + location.key * P::kKeyRow, skip, queries, sums);
}

// The ends of a panel's tiles of keys, for each of its two vectors of queries.
struct TileEnds {
  int64_t end[2];
};

// Calls body<masking>(location) for the tiles of a panel of queries against the keys that any of them sees. If only the
// panel's second vector sees a tile's keys, the tile is one vector wide.
template <class P, class Body>
HWY_INLINE TileEnds ForTiles(const Window& window, int64_t i, const uint8_t* kept, const Body& body) {
  const Tiles tiles(window.keys);
  Location location{window, kept, 0, 0, i, std::min<int64_t>(kWidth, window.queries - i)};
  const int64_t end = round_up(window.keys, 2);
  TileEnds ends{{end, end}};
  for (int64_t t = 0; t < tiles.tiles; ++t) {
    if (tiles.begin(t + 1) <= window.begin) continue;
    location.key = tiles.begin(t), location.rows = 2 * tiles.half_rows(t);
    const int64_t first_seer = window.first_seer(location.key);
    if (location.columns > kLanes && first_seer >= i + kLanes) {
      ends.end[0] = location.key;
      location.query += kLanes, location.columns -= kLanes;
    }
    if (first_seer >= location.query + location.columns) {  // and neither do they see later keys
      ends.end[0] = std::min(ends.end[0], location.key), ends.end[1] = location.key;
      break;
    }
    const bool whole = tiles.begin(t + 1) <= window.limit(location.query) && location.columns % P::kPair == 0;
    if (window.bias || window.latest > location.key) body.template operator()<Masking::kLimited>(location);
    else if (!whole) body.template operator()<Masking::kAny>(location);
    else if (kept) body.template operator()<Masking::kDropout>(location);
    else body.template operator()<Masking::kNone>(location);
  }
  return ends;
}

// Zeros behind the keys of a panel's tiles, as far as a tile of queries with some of the next panel's may reach.
template <class P> HWY_INLINE void ClearUnseen(const Window& window, int64_t i, const TileEnds& ends, float* weights) {
  for (int h = 0; h < 2; ++h, i += kLanes) {
    const int64_t last = std::min(window.keys, window.limit(std::min(i + kLanes, window.queries) - 1) + kRows);
    for (int64_t j = ends.end[h] / P::kPair; j < ceil_div(last, P::kPair); ++j)
      hn::Store(hn::Zero(d), d, weights + j * P::kAlongKeys + i);
  }
}

// out[queries, width] (+)= weights[keys, queries]^T times the panels of [keys, width]. May write one more row.
template <class P> HWY_INLINE void WeighKeys(const Window& window, int64_t width, const float* weights,
    const float* panels, float* out, int64_t stride, bool accumulate) {
  const Tiles tiles(window.queries);
  const int64_t begin = window.begin / P::kPair;
  for (int64_t k = 0; k < width; k += kWidth, panels += ceil_div(window.keys, P::kPair) * kWidth)
    for (int64_t t = 0; t < tiles.tiles; ++t) {
      const int64_t i = tiles.begin(t), last = std::min(tiles.begin(t + 1), window.queries) - 1;
      TileFor<P, 1, P::kAlongKeys>(tiles.half_rows(t), width - k)(ceil_div(window.limit(last), P::kPair) - begin,
          weights + begin * P::kAlongKeys + i, 0, panels + begin * kWidth, {out + i * stride + k, stride, accumulate});
    }
}

// out[keys, width] += weights[keys, queries] times the panels of [queries, width], by seeing queries. May write a
// further row.
template <class P> HWY_INLINE void WeighQueries(
    const Window& window, int64_t width, const float* weights, const float* panels, float* out, int64_t stride) {
  const Tiles tiles(window.keys);
  const int64_t depth = ceil_div(window.queries, P::kPair);
  for (int64_t k = 0; k < width; k += kWidth, panels += depth * kWidth)
    for (int64_t t = 0; t < tiles.tiles; ++t) {
      const int64_t j = tiles.begin(t), first = window.first_seer(j) / P::kPair;
      if (window.first_seer(j) >= window.queries) break;  // and neither does any see later keys
      if (tiles.begin(t + 1) <= window.begin) continue;
      TileFor<P, P::kAlongQueries, 1>(tiles.half_rows(t), width - k)(depth - first,
          weights + j * P::kAlongQueries + first, 0, panels + first * kWidth, {out + j * stride + k, stride, true});
    }
}

// The same one product at a time, without unseen operands: 0 * NaN is not 0. Tiles would spread masked NaN or infinity.
template <class P> HWY_NOINLINE void WeighKeysExactly(const Window& window, int64_t width, const float* weights,
    const float* panels, float* out, int64_t stride, bool accumulate) {
  const int64_t depth = ceil_div(window.keys, P::kPair);
  for (int64_t i = 0; i < window.queries; ++i)
    for (int64_t k = 0; k < width; ++k) {
      float sum = accumulate ? out[i * stride + k] : 0.0f;
      const float* column = panels + k / kWidth * depth * kWidth + k % kWidth;
      for (int64_t j = window.start(i); j < window.limit(i); ++j)
        sum += P::along_keys(weights, j, i) * P::unpack(column[j / P::kPair * kWidth], j % P::kPair);
      out[i * stride + k] = sum;
    }
}
template <class P> HWY_NOINLINE void WeighQueriesExactly(
    const Window& window, int64_t width, const float* weights, const float* panels, float* out, int64_t stride) {
  const int64_t depth = ceil_div(window.queries, P::kPair);
  for (int64_t j = 0; j < window.keys; ++j)
    for (int64_t k = 0; k < width; ++k) {
      const float* column = panels + k / kWidth * depth * kWidth + k % kWidth;
      for (int64_t i = window.first_seer(j); i < window.queries; ++i)
        if (window.start(i) <= j)
          out[j * stride + k] +=
              P::along_queries(weights, j, i) * P::unpack(column[i / P::kPair * kWidth], i % P::kPair);
    }
}
}  // namespace linnet::HWY_NAMESPACE::attention
HWY_AFTER_NAMESPACE();
