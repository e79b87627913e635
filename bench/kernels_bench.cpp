// The kernels on the shapes of the reference models, in GFLOP/s or GB/s:  kernels_bench --benchmark_filter=attention
// Matrix products have a program of their own, gemm_bench.
#include <benchmark/benchmark.h>
#include <cstdint>
#include <vector>
#include "base/thread_pool.h"
#include "engine/kernels/attention/attention.h"
#include "engine/kernels/loss/cross_entropy.h"
#include "engine/kernels/norm/norm.h"
#include "engine/kernels/optimizer.h"

namespace linnet {
namespace {
std::vector<float> values(int64_t count) {
  std::vector<float> x(static_cast<size_t>(count));
  uint32_t state = 12345;
  for (float& v : x) {
    state = state * 1664525u + 1013904223u;
    v = static_cast<float>(static_cast<int32_t>(state >> 9) % 2001 - 1000) * 1e-3f;
  }
  return x;
}

// Numbers in memory as fp32 or as bf16.
class Stored {
 public:
  Stored(const std::vector<float>& x, bool in_bf16) : in_bf16_(in_bf16) {
    if (in_bf16) bf16_ = std::vector<Bfloat16>(x.begin(), x.end());
    else f32_ = x;
  }
  operator MutableStoredFloats() { return in_bf16_ ? MutableStoredFloats(bf16_.data()) : f32_.data(); }
  operator StoredFloats() { return MutableStoredFloats(*this); }

 private:
  bool in_bf16_;
  std::vector<float> f32_;
  std::vector<Bfloat16> bf16_;
};

struct Workspace {
  explicit Workspace(size_t bytes) : memory(bytes + 64) {}
  std::byte* data() { return memory.data() + (64 - reinterpret_cast<size_t>(memory.data()) % 64); }
  std::vector<std::byte> memory;
};

void report_flops(benchmark::State& state, double flops) {
  state.counters["GFLOP/s"] = benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

// Threads, forward (0) or backward (1), fp32 (0), bf16 (1) or bf16 in memory too (2), batch, heads, length, head size,
// mask (0: none, 1: causal, 2: lengths), dropout in percent. Counts the products a query has with the keys it sees: two
// forward, five backward.
void attention_bench(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  AttentionArgs args;
  const bool stored = state.range(2) == 2;
  args.precision = state.range(2) > 0 ? Precision::kBf16 : Precision::kF32;
  args.dq_in_bf16 = stored;
  args.batch = state.range(3), args.query_heads = args.kv_heads = state.range(4);
  args.query_length = args.key_length = state.range(5), args.head_size = state.range(6);
  args.scale = 0.2f, args.causal = state.range(7) == 1;
  args.dropout = static_cast<float>(state.range(8)) * 0.01f, args.dropout_key = 7;
  std::vector<int32_t> lengths;  // from half of the length up
  for (int64_t b = 0; b < args.batch; ++b)
    lengths.push_back(static_cast<int32_t>(args.key_length - b * args.key_length / (2 * args.batch)));
  if (state.range(7) == 2) args.key_lengths = lengths.data();
  const int64_t row = args.query_heads * args.head_size, count = args.batch * args.query_length * row;
  const auto operand = [&] { return Stored(values(count), stored); };
  Stored q = operand(), k = operand(), v = operand(), d_o = operand(), o = operand(), dq = operand(), dk = operand(),
         dv = operand();
  std::vector<float> lse(static_cast<size_t>(args.batch * args.query_heads * args.query_length));
  const auto rows = [&](Stored& x) { return AttentionRows{x, args.query_length * row, row}; };
  const auto mutable_rows = [&](Stored& x) { return MutableAttentionRows{x, args.query_length * row, row}; };
  Workspace workspace(
      std::max(attention_forward_workspace(args, pool.size()), attention_backward_workspace(args, pool.size())));
  attention_forward(args, rows(q), rows(k), rows(v), mutable_rows(o), lse.data(), workspace.data(), pool);
  const bool backward = state.range(1) == 1;
  for (auto _ : state) {
    if (backward)
      attention_backward(args, rows(q), rows(k), rows(v), rows(o), lse.data(), rows(d_o), mutable_rows(dq),
          mutable_rows(dk), mutable_rows(dv), nullptr, workspace.data(), pool);
    else attention_forward(args, rows(q), rows(k), rows(v), mutable_rows(o), lse.data(), workspace.data(), pool);
  }
  int64_t pairs = 0;
  for (int64_t b = 0; b < args.batch; ++b)
    pairs += args.causal        ? args.query_length * (args.query_length + 1) / 2
             : args.key_lengths ? args.query_length * lengths[static_cast<size_t>(b)]
                                : args.query_length * args.key_length;
  report_flops(state, (backward ? 10.0 : 4.0) * static_cast<double>(pairs * row));
}

// Those of the translation models, of GPT-2 and of BERT.
void attention_shapes(benchmark::internal::Benchmark* bench) {
  for (int64_t threads : {1, 2})
    for (int64_t backward : {0, 1})
      for (int64_t bf16 : {0, 1, 2}) {
        const auto add = [&](const std::vector<int64_t>& shape) {
          std::vector<int64_t> all{threads, backward, bf16};
          all.insert(all.end(), shape.begin(), shape.end());
          bench->Args(all);
        };
        for (int64_t length : {64, 256})
          for (int64_t mask : {1, 2})
            for (int64_t dropout : {0, 10}) add({16, 8, length, 32, mask, dropout});
        add({8, 6, 256, 64, 1, 0});
        add({2, 12, 1024, 64, 1, 0});
        add({4, 12, 512, 64, 2, 10});
      }
}
BENCHMARK(attention_bench)
    ->Name("attention")
    ->ArgNames({"threads", "backward", "bf16", "batch", "heads", "length", "size", "mask", "dropout"})
    ->Apply(attention_shapes)
    ->UseRealTime();

// Threads, bf16 in memory, rows, width. Counts what is read and written once.
void layer_norm_bench(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  const bool stored = state.range(1) == 1;
  const int64_t rows = state.range(2), width = state.range(3);
  const auto weight = values(width), bias = values(width);
  Stored x(values(rows * width), stored), y = x;
  std::vector<float> mean(static_cast<size_t>(rows)), rstd(mean.size());
  for (auto _ : state)
    row_norm_forward({.rows = rows,
                         .width = width,
                         .x = x,
                         .weight = weight.data(),
                         .bias = bias.data(),
                         .epsilon = 1e-5f,
                         .y = y,
                         .mean = mean.data(),
                         .rstd = rstd.data()},
        pool);
  state.SetBytesProcessed(state.iterations() * rows * width * (stored ? 4 : 8));
}

// The same with forward (0) or backward (1), and dropout in percent.
void residual_norm_bench(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  const bool stored = state.range(1) == 1, is_backward = state.range(4) == 1;
  const int64_t rows = state.range(2), width = state.range(3);
  const ResidualDropout dropout{static_cast<float>(state.range(5)) * 0.01f, 7, 512};
  const auto weight = values(width), bias = values(width);
  Stored x(values(rows * width), stored), f = x, sum = x, y = x, df = x;
  std::vector<float> mean(static_cast<size_t>(rows)), rstd(mean.size()), dweight(weight.size()), dbias(weight.size());
  Workspace workspace(row_norm_backward_workspace(rows, width));
  RowNormForward forward{.rows = rows, .width = width, .x = x, .f = f};
  forward.weight = weight.data(), forward.bias = bias.data(), forward.epsilon = 1e-5f, forward.dropout = dropout;
  forward.sum = sum, forward.y = y, forward.mean = mean.data(), forward.rstd = rstd.data();
  row_norm_forward(forward, pool);
  RowNormBackward backward{.rows = rows, .width = width, .dy = y, .sum = sum, .dsum = f};
  backward.weight = weight.data(), backward.mean = mean.data(), backward.rstd = rstd.data();
  backward.dropout = dropout, backward.dx = x, backward.dweight = dweight.data(), backward.dbias = dbias.data();
  if (dropout.p > 0) backward.df = df;
  for (auto _ : state) {
    if (is_backward) row_norm_backward(backward, workspace.data(), pool);
    else row_norm_forward(forward, pool);
  }
  const int64_t operands = dropout.p > 0 && is_backward ? 5 : 4;
  state.SetBytesProcessed(state.iterations() * rows * width * operands * (stored ? 2 : 4));
}

// Those of the translation models, of GPT-2 and of BERT, which are alike.
void norm_shapes(benchmark::internal::Benchmark* bench) {
  for (const int64_t threads : {1, 2})
    for (const int64_t stored : {0, 1})
      for (const int64_t width : {256, 768}) bench->Args({threads, stored, 2048, width});
}
void residual_norm_shapes(benchmark::internal::Benchmark* bench) {
  for (const int64_t threads : {1, 2})
    for (const int64_t stored : {0, 1})
      for (const int64_t width : {256, 768})
        for (const int64_t backward : {0, 1})
          for (const int64_t dropout : {0, 10}) bench->Args({threads, stored, 2048, width, backward, dropout});
}
BENCHMARK(layer_norm_bench)
    ->Name("layer_norm")
    ->ArgNames({"threads", "bf16", "rows", "width"})
    ->Apply(norm_shapes)
    ->UseRealTime();
BENCHMARK(residual_norm_bench)
    ->Name("residual_norm")
    ->ArgNames({"threads", "bf16", "rows", "width", "backward", "dropout"})
    ->Apply(residual_norm_shapes)
    ->UseRealTime();

void cross_entropy_bench(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  const int64_t rows = 2048, classes = 6000;
  const auto x = values(rows * classes);
  const std::vector<int32_t> targets(rows, 7);
  std::vector<float> losses(rows), lse(rows);
  for (auto _ : state)
    cross_entropy_forward(rows, classes, x.data(), targets.data(), 0.1f, losses.data(), lse.data(), pool);
  state.SetBytesProcessed(state.iterations() * rows * classes * 4);
}
BENCHMARK(cross_entropy_bench)->Name("cross_entropy")->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

void adam_bench(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  const int64_t n = 5'500'000;
  auto parameters = values(n), gradient = values(n), m = values(n);
  std::vector<float> v(parameters.size(), 1.0f);
  UpdateArgs args;
  args.n = n, args.param = parameters.data(), args.grad = gradient.data(), args.m = m.data(), args.v = v.data();
  for (auto _ : state) adam_update(args, pool);
  state.SetBytesProcessed(state.iterations() * n * 28);
}
BENCHMARK(adam_bench)->Name("adam")->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();
}  // namespace
}  // namespace linnet

BENCHMARK_MAIN();
