// The kernels on the shapes of the reference models, in GFLOP/s or GB/s:  kernels_bench --benchmark_filter=attention
// Matrix products have a program of their own, gemm_bench.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/attention/attention.h"
#include "kernels/loss/cross_entropy.h"
#include "kernels/norm/layer_norm.h"
#include "kernels/optimizer.h"

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

struct Workspace {
  explicit Workspace(size_t bytes) : memory(bytes + 64) {}
  std::byte* data() { return memory.data() + (64 - reinterpret_cast<size_t>(memory.data()) % 64); }
  std::vector<std::byte> memory;
};

void report_flops(benchmark::State& state, double flops) {
  state.counters["GFLOP/s"] = benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

// Threads, forward (0) or backward (1), fp32 (0) or bf16 (1), batch, heads, length, head size, mask (0: none, 1:
// causal, 2: lengths), dropout in percent. Counts the products a query has with the keys it sees: two forward, five
// backward.
void attention_bench(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  AttentionArgs args;
  args.precision = state.range(2) == 1 ? Precision::kBf16 : Precision::kF32;
  args.batch = state.range(3), args.query_heads = args.kv_heads = state.range(4);
  args.query_length = args.key_length = state.range(5), args.head_size = state.range(6);
  args.scale = 0.2f, args.causal = state.range(7) == 1;
  args.dropout = static_cast<float>(state.range(8)) * 0.01f, args.dropout_key = 7;
  std::vector<int32_t> lengths;  // from half of the length up
  for (int64_t b = 0; b < args.batch; ++b)
    lengths.push_back(static_cast<int32_t>(args.key_length - b * args.key_length / (2 * args.batch)));
  if (state.range(7) == 2) args.key_lengths = lengths.data();
  const int64_t row = args.query_heads * args.head_size, count = args.batch * args.query_length * row;
  const auto q = values(count), k = values(count), v = values(count), d_o = values(count);
  std::vector<float> o(q.size()), dq(q.size()), dk(q.size()), dv(q.size()),
      lse(static_cast<size_t>(args.batch * args.query_heads * args.query_length));
  const auto rows = [&](const std::vector<float>& x) { return AttentionRows{x.data(), args.query_length * row, row}; };
  const auto mutable_rows = [&](std::vector<float>& x) {
    return MutableAttentionRows{x.data(), args.query_length * row, row};
  };
  Workspace workspace(
      std::max(attention_forward_workspace(args, pool.size()), attention_backward_workspace(args, pool.size())));
  attention_forward(args, rows(q), rows(k), rows(v), mutable_rows(o), lse.data(), workspace.data(), pool);
  const bool backward = state.range(1) == 1;
  for (auto _ : state) {
    if (backward)
      attention_backward(args, rows(q), rows(k), rows(v), rows(o), lse.data(), rows(d_o), mutable_rows(dq),
                         mutable_rows(dk), mutable_rows(dv), nullptr, workspace.data(), pool);
    else
      attention_forward(args, rows(q), rows(k), rows(v), mutable_rows(o), lse.data(), workspace.data(), pool);
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
      for (int64_t bf16 : {0, 1}) {
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

void layer_norm_bench(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  const int64_t rows = 2048, width = 256;
  const auto x = values(rows * width), weight = values(width), bias = values(width);
  std::vector<float> y(x.size()), mean(rows), rstd(rows);
  for (auto _ : state)
    layer_norm_forward(rows, width, x.data(), weight.data(), bias.data(), 1e-5f, y.data(), mean.data(), rstd.data(),
                       pool);
  state.SetBytesProcessed(state.iterations() * rows * width * 8);
}
BENCHMARK(layer_norm_bench)->Name("layer_norm")->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

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
  AdamArgs args;
  args.n = n, args.param = parameters.data(), args.grad = gradient.data(), args.m = m.data(), args.v = v.data();
  for (auto _ : state) adam_update(args, pool);
  state.SetBytesProcessed(state.iterations() * n * 28);
}
BENCHMARK(adam_bench)->Name("adam")->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

}  // namespace
}  // namespace linnet

BENCHMARK_MAIN();
