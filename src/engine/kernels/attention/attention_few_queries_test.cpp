#include <cmath>
#include "engine/kernels/attention/attention.h"
#include "kernel_testing.h"

namespace linnet {
namespace {
struct Problem {
  AttentionArgs args;
  std::vector<int32_t> lengths, starts;
  std::vector<float> bias;
  std::vector<float> q, kv;  // [B, Tq, H D], [B, Tk, 2 G D]: keys, then values
};

Problem problem(int64_t batch, int64_t heads, int64_t kv_heads, int64_t queries, int64_t keys, int64_t size) {
  Problem p;
  p.args = {.batch = batch,
      .query_heads = heads,
      .kv_heads = kv_heads,
      .query_length = queries,
      .key_length = keys,
      .head_size = size,
      .scale = 0.3f};
  for (int64_t b = 0; b < batch; ++b) p.lengths.push_back(static_cast<int32_t>(b == 0 ? keys : (b * 7) % (keys + 1)));
  p.q = random_floats(batch * queries * heads * size, 1);
  p.kv = random_floats(batch * keys * 2 * kv_heads * size, 2);
  return p;
}

// The output and, after it, the log-sum-exp.
template <class Attention>
std::vector<float> attend(Problem& p, size_t workspace_bytes, const Attention& attention, ThreadPool& pool) {
  AttentionArgs& a = p.args;
  a.key_lengths = p.lengths.data();
  a.starts = p.starts.empty() ? nullptr : p.starts.data();
  a.biased = !p.bias.empty(), a.distance_bias = p.bias.data();
  const int64_t q_row = a.query_heads * a.head_size, k_row = 2 * a.kv_heads * a.head_size;
  const int64_t outputs = a.batch * a.query_length * q_row;
  std::vector<float> out(static_cast<size_t>(outputs + a.batch * a.query_heads * a.query_length), 7.0f);
  std::vector<std::max_align_t> memory(workspace_bytes / sizeof(std::max_align_t) + 8);
  auto* workspace = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
  attention(a, AttentionRows{p.q.data(), a.query_length * q_row, q_row},
      AttentionRows{p.kv.data(), a.key_length * k_row, k_row},
      AttentionRows{p.kv.data() + k_row / 2, a.key_length * k_row, k_row},
      MutableAttentionRows{out.data(), a.query_length * q_row, q_row}, out.data() + outputs, workspace, pool);
  return out;
}

std::vector<float> few_queries(Problem& p, ThreadPool& pool) {
  const auto attention = [](auto&&... arguments) { attention_few_queries(arguments...); };
  return attend(p, attention_few_queries_workspace(p.args, pool.size()), attention, pool);
}

TEST(AttentionFewQueries, EqualsFlashAttention) {
  for (Problem p : {problem(40, 4, 4, 1, 26, 64), problem(9, 6, 2, 5, 33, 20), problem(3, 1, 1, 8, 300, 7),
           problem(5, 2, 2, 2, 1, 1)}) {
    ThreadPool one(1);
    const std::vector<float> want = attend(p, attention_forward_workspace(p.args, 1), attention_forward, one);
    ASSERT_TRUE(has_few_queries(p.args));
    for_every_isa([&](ThreadPool& pool) { return few_queries(p, pool); },
        [&](const std::vector<float>& got) { expect_close(got, want, 4e-6); });
  }
}

TEST(AttentionFewQueries, EqualsFlashAttentionWithStartsAndBias) {
  for (Problem p : {problem(40, 4, 4, 1, 26, 64), problem(9, 6, 2, 5, 33, 20), problem(3, 1, 1, 8, 300, 7)}) {
    const AttentionArgs& a = p.args;
    p.bias = random_floats(a.query_heads * (a.query_length + a.key_length - 1), 5);
    for (int64_t i = 0; i < a.batch * a.query_length; ++i) p.starts.push_back(static_cast<int32_t>(i * 7 % 20 - 5));
    ThreadPool one(1);
    p.args.biased = true;
    const std::vector<float> want = attend(p, attention_forward_workspace(p.args, 1), attention_forward, one);
    for_every_isa([&](ThreadPool& pool) { return few_queries(p, pool); },
        [&](const std::vector<float>& got) { expect_close(got, want, 4e-6); });
  }
}

// A causal query of many has the bits of one query that is asked alone, with longer memory for keys behind it.
TEST(AttentionFewQueries, IndependentQueriesHaveTheBitsOfEachAlone) {
  for (const int64_t window : {0, 5}) {
    Problem many = problem(1, 4, 2, 37, 37, 20);
    many.lengths = {37};
    many.args.causal = true, many.args.independent_queries = true, many.args.window = window;
    ASSERT_TRUE(has_few_queries(many.args));
    for_every_isa(
        [&](ThreadPool& pool) {
          const std::vector<float> all = few_queries(many, pool);
          for (int64_t i = 0; i < 37; ++i) {
            Problem alone = problem(1, 4, 2, 1, 64, 20);
            std::copy_n(many.q.begin() + i * 80, 80, alone.q.begin());
            std::copy_n(many.kv.begin(), 37 * 80, alone.kv.begin());
            alone.lengths = {static_cast<int32_t>(i + 1)};
            if (window > 0) alone.starts = {static_cast<int32_t>(i + 1 - window)};
            const std::vector<float> one = few_queries(alone, pool);
            EXPECT_TRUE(std::equal(one.begin(), one.begin() + 80, all.begin() + i * 80)) << i;
          }
          return all;
        },
        [](const std::vector<float>&) {});
  }
}

TEST(AttentionFewQueries, MaskedKeysMayHoldAnythingAndNanShows) {
  Problem p = problem(3, 2, 2, 2, 10, 16);
  p.lengths = {4, 10, 0};
  for (int64_t t = 4; t < 10; ++t)
    p.kv[static_cast<size_t>(t * 64 + 5)] = p.kv[static_cast<size_t>(t * 64 + 40)] = kNan;
  p.kv[640 + 3] = kNan;  // sample 1, key 0, head 0
  for_every_isa([&](ThreadPool& pool) { return few_queries(p, pool); },
      [&](const std::vector<float>& got) {
        for (size_t i = 0; i < 64; ++i) {
          EXPECT_FALSE(std::isnan(got[i]));
          EXPECT_EQ(std::isnan(got[64 + i]), i % 32 < 16) << i;
          EXPECT_EQ(got[128 + i], 0);
        }
        for (size_t i = 0; i < 4; ++i) EXPECT_EQ(got[192 + 8 + i], -kInf);
      });
}
}  // namespace
}  // namespace linnet
