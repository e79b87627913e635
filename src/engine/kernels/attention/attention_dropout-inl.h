// The dropout of a block of probabilities, drawn ahead as one bit each. The numbers are those of
// engine/kernels/philox.h. Included by *_simd.cpp after "hwy/foreach_target.h" (once per instruction set).
#if defined(LINNET_KERNELS_ATTENTION_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_ATTENTION_DROPOUT_INL_H_
#undef LINNET_KERNELS_ATTENTION_DROPOUT_INL_H_
#else
#define LINNET_KERNELS_ATTENTION_DROPOUT_INL_H_
#endif

#include "engine/kernels/attention/attention-inl.h"
#include "engine/kernels/random/philox-inl.h"
#include "engine/kernels/random/philox.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::attention {

// Bits of a vector of queries, and of all queries of a block: bit i % kLanes of byte i / kLanes * kMaskBytes (and on).
constexpr int64_t kMaskBytes = kLanes > 8 ? kLanes / 8 : 1;
constexpr int64_t kMaskRow = kQueryBlock / kLanes * kMaskBytes;
static_assert(kMaskRow * 16 <= kQueryBlock * 4);  // what Layout has room for

class Dropout {
 public:
  Dropout(const AttentionArgs& args, int64_t sample, float* memory)
      : active(args.dropout > 0),
        scale(active ? dropout_scale(args.dropout) : 1.0f),
        threshold_(active ? dropout_threshold(args.dropout) << 16 : 0),
        sample_(static_cast<uint32_t>(sample)),
        first_head_(args.first_head),
        bits_(reinterpret_cast<uint8_t*>(memory)) {
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
        draw_eight(query, static_cast<uint32_t>((window.first_key + j) / 8),
                   bits_ + j * kMaskRow + i / kLanes * kMaskBytes);
    }
    return bits_;
  }

  const bool active;
  const float scale;

 private:
  static constexpr uint64_t kMul0 = 0xD2511F53u, kMul1 = 0xCD9E8D57u;
  // Vectors of counters drawn side by side, to hide the latency of the chain of products: of the even and of the odd
  // queries of two vectors.
  static constexpr int kCounters = 4;
  static constexpr uint32_t low(uint64_t x) { return static_cast<uint32_t>(x); }
  static constexpr uint32_t high(uint64_t x) { return static_cast<uint32_t>(x >> 32); }
  static HWY_INLINE PhiloxLanes times(PhiloxLanes x, uint64_t factor) {
    const hn::Repartition<uint32_t, PhiloxTag> d32;
    return hn::MulEven(hn::BitCast(d32, x), hn::Set(d32, low(factor)));
  }

  // Counters are {key / 8, query, head, sample}: key, head and sample are the same in all lanes, and what the first two
  // rounds multiply depends on the query or on the others, never on both. So two and a half of the ten rounds are
  // scalar, or the same for all keys.
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

  // Eight keys and a panel of queries.
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

// The lanes of vector h of `row` of a location that are kept.
HWY_INLINE auto Kept(const Location& location, int64_t row, int h) {
  return hn::LoadMaskBits(d,
                          location.kept + (location.key + row) * kMaskRow + (location.query / kLanes + h) * kMaskBytes);
}

}  // namespace linnet::HWY_NAMESPACE::attention
HWY_AFTER_NAMESPACE();

#endif
